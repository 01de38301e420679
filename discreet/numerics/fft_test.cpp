#include "discreet/numerics/fft.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

#include "discreet/base/error.h"

namespace discreet::numerics {
namespace {

using Complex = std::complex<double>;
using Long = std::complex<long double>;

std::vector<Complex> noise(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto unit = [&] { return static_cast<double>(random() >> 11) * 0x1p-52 - 1; };
  std::vector<Complex> x(n);
  for (Complex& v : x) v = {unit(), unit()};
  return x;
}

// By definition, in extended precision; the exponent is reduced in integers.
std::vector<Long> by_definition(const std::vector<Complex>& x) {
  const std::size_t n = x.size();
  std::vector<Long> roots(n), y(n);
  for (std::size_t k = 0; k < n; ++k)
    roots[k] = std::polar(1.0L, -2 * std::numbers::pi_v<long double> * static_cast<long double>(k) /
                                    static_cast<long double>(n));
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t j = 0; j < n; ++j) y[k] += Long(x[j]) * roots[j * k % n];
  return y;
}

double relative_distance(const std::vector<Complex>& got, const std::vector<Long>& exact) {
  long double error = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += std::norm(Long(got[i]) - exact[i]);
    size += std::norm(exact[i]);
  }
  return static_cast<double>(std::sqrt(error / size));
}

TEST(Fft, IsTheTransformWithinItsStatedError) {
  for (const std::size_t n :
       {1,  2,  3,  4,   5,   6,   8,   9,   10,  12,  15,  16,   20,   25,   30,   32,   36,
        60, 64, 81, 100, 125, 128, 360, 512, 625, 729, 900, 1000, 1024, 1200, 1500, 2000, 2048}) {
    const std::vector<Complex> x = noise(n, n);
    std::vector<Complex> y = x, work(n);
    const Fft fft(n);
    fft.forward(y, work);
    EXPECT_LE(relative_distance(y, by_definition(x)), fft.relative_error()) << n;
  }
}

TEST(Fft, TwiddlesAreWithinTwoUnits) {
  for (const std::size_t n : {4096, 6561, 15625, 30000}) {
    const Fft fft(n);
    for (std::size_t k = 0; k < n; ++k) {
      const Long exact =
          std::polar(1.0L, -2 * std::numbers::pi_v<long double> * static_cast<long double>(k) /
                               static_cast<long double>(n));
      EXPECT_LE(std::abs(Long(fft.twiddles()[k]) - exact), 2 * 0x1p-53L) << k << "/" << n;
    }
  }
}

TEST(Fft, InverseReturnsTheInput) {
  for (const std::size_t n : {1, 48, 1000, 4096, 19683, 1 << 18}) {
    const std::vector<Complex> x = noise(n, 3);
    std::vector<Complex> y = x, work(n);
    const Fft fft(n);
    fft.forward(y, work);
    fft.inverse(y, work);
    EXPECT_LE(relative_distance(y, std::vector<Long>(x.begin(), x.end())),
              2.01 * fft.relative_error() + 0x1p-53)
        << n;
  }
}

TEST(Fft, OfALargeDeltaIsTheTwiddles) {
  const std::size_t n = 1 << 20;
  std::vector<Complex> x(n), work(n);
  x[1] = 1;
  const Fft fft(n);
  fft.forward(x, work);
  double worst = 0;
  for (std::size_t k = 0; k < n; ++k) worst = std::max(worst, std::abs(x[k] - fft.twiddles()[k]));
  EXPECT_LE(worst, fft.relative_error());
}

TEST(RealFft, AgreesWithTheComplexTransform) {
  for (const std::size_t n : {2, 4, 6, 8, 10, 24, 90, 512, 1000, 4096}) {
    const std::vector<Complex> noisy = noise(n, n);
    std::vector<double> x(n);
    std::vector<Complex> full(n);
    for (std::size_t i = 0; i < n; ++i) full[i] = x[i] = noisy[i].real();
    const std::vector<Long> exact = by_definition(full);
    const RealFft fft(n);
    std::vector<Complex> spectrum(fft.spectrum_size());
    fft.forward(x, spectrum);
    EXPECT_LE(relative_distance(
                  spectrum,
                  std::vector<Long>(exact.begin(),
                                    exact.begin() + static_cast<std::ptrdiff_t>(spectrum.size()))),
              1.5 * fft.relative_error())
        << n << ": half of a spectrum holds at least half of its squares";
    std::vector<double> back(n);
    fft.inverse(spectrum, back);
    for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(back[i], x[i], 1e-14) << n;
  }
}

TEST(Fft, RefusesOtherLengths) {
  for (const std::size_t n : {0, 7, 14, 11 * 16}) EXPECT_THROW(Fft fft(n), Error) << n;
  EXPECT_THROW(RealFft fft(9), Error);
  std::vector<Complex> x(8), work(4);
  EXPECT_THROW(Fft(8).forward(x, work), Error);
  EXPECT_EQ(fft_length(7), 8u);
  EXPECT_EQ(fft_length(1025), 1080u);
  EXPECT_EQ(fft_length(0), 1u);
}

}  // namespace
}  // namespace discreet::numerics
