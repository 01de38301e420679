#include "discreet/data/scattering.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <numbers>
#include <random>
#include <vector>

#include "discreet/base/error.h"

namespace discreet::data {
namespace {

std::vector<float> noise(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<float> out(count);
  for (float& v : out) v = static_cast<float>(engine() % 1000) / 1000;
  return out;
}

// The definition of scattering.h and features.md, read aloud in binary64: sums over pixels, nothing
// but the formulas.
class Direct {
 public:
  Direct(std::size_t height, std::size_t width, std::size_t tall, std::size_t wide)
      : image_height_(height), image_width_(width), h_(tall), w_(wide) {}

  std::vector<double> features(std::span<const float> image) const {
    const auto mirrored = [](std::ptrdiff_t at, std::ptrdiff_t n) {
      while (at < 0 || at >= n) at = at < 0 ? -at : 2 * (n - 1) - at;
      return at;
    };
    Real x(h_ * w_);
    for (std::size_t i = 0; i < h_; ++i)
      for (std::size_t k = 0; k < w_; ++k)
        x[i * w_ + k] =
            image[static_cast<std::size_t>(mirrored(static_cast<std::ptrdiff_t>(i) - 2,
                                                    static_cast<std::ptrdiff_t>(image_height_)) *
                                               static_cast<std::ptrdiff_t>(image_width_) +
                                           mirrored(static_cast<std::ptrdiff_t>(k) - 2,
                                                    static_cast<std::ptrdiff_t>(image_width_)))];
    std::vector<double> out;
    average(x, 1, out);
    std::vector<Real> first;
    for (int a = 0; a < 8; ++a) {
      first.push_back(modulus(x, 0, a, 1));
      average(first.back(), 1, out);
    }
    for (int a = 0; a < 8; ++a) average(modulus(x, 1, a, 2), 2, out);
    for (int a = 0; a < 8; ++a)
      for (int b = 0; b < 8; ++b)
        average(modulus(first[static_cast<std::size_t>(a)], 1, b, 2), 2, out);
    return out;
  }

 private:
  using Real = std::vector<double>;

  std::complex<double> morlet(int j, int angle, double y, double x) const {
    const double sigma = 0.8 * std::pow(2, j), xi = 3 * std::numbers::pi / 4 / std::pow(2, j);
    const double theta = (3 - angle) * std::numbers::pi / 8;
    const double u = y * std::cos(theta) + x * std::sin(theta);
    const double v = -y * std::sin(theta) + x * std::cos(theta);
    const double envelope = std::exp(-(u * u + v * v / 4) / (2 * sigma * sigma)) /
                            (4 * std::numbers::pi * sigma * sigma);
    return {envelope * (std::cos(xi * u)), envelope * std::sin(xi * u)};
  }
  std::complex<double> periodic(int j, int angle, std::size_t y, std::size_t x, bool wave) const {
    std::complex<double> sum = 0;
    for (int p = -4; p <= 4; ++p)
      for (int q = -4; q <= 4; ++q) {
        const auto value = morlet(j, angle, static_cast<double>(y) + p * static_cast<double>(h_),
                                  static_cast<double>(x) + q * static_cast<double>(w_));
        sum += wave ? value : std::abs(value);
      }
    return sum;
  }
  Real modulus(const Real& x, int j, int angle, std::size_t apart) const {
    std::vector<std::complex<double>> psi(h_ * w_);
    std::complex<double> waves = 0, envelopes = 0;
    for (std::size_t i = 0; i < psi.size(); ++i) {
      waves += periodic(j, angle, i / w_, i % w_, true);
      envelopes += periodic(j, angle, i / w_, i % w_, false);
    }
    for (std::size_t i = 0; i < psi.size(); ++i)
      psi[i] = periodic(j, angle, i / w_, i % w_, true) -
               waves / envelopes * periodic(j, angle, i / w_, i % w_, false);
    Real out;
    for (std::size_t y = 0; y < h_; y += apart)
      for (std::size_t z = 0; z < w_; z += apart) {
        std::complex<double> sum = 0;
        for (std::size_t i = 0; i < h_; ++i)
          for (std::size_t k = 0; k < w_; ++k)
            sum += x[i * w_ + k] * psi[(y + h_ - i) % h_ * w_ + (z + w_ - k) % w_];
        out.push_back(std::abs(sum));
      }
    return out;
  }
  // phi, on samples `apart` pixels apart, at the pixels 4, 8, … of the torus.
  void average(const Real& u, std::size_t apart, std::vector<double>& out) const {
    const auto phi = [](std::size_t n, std::size_t t) {
      const auto periodic = [n](std::size_t s) {
        double sum = 0;
        for (int p = -4; p <= 4; ++p) {
          const double x = static_cast<double>(s) + p * static_cast<double>(n);
          sum += std::exp(-x * x / (2 * 1.6 * 1.6));
        }
        return sum;
      };
      double total = 0;
      for (std::size_t s = 0; s < n; ++s) total += periodic(s);
      return periodic(t) / total;
    };
    for (std::size_t y = 4; y <= image_height_ / 4 * 4; y += 4)
      for (std::size_t z = 4; z <= image_width_ / 4 * 4; z += 4) {
        double sum = 0;
        for (std::size_t i = 0; i < h_ / apart; ++i)
          for (std::size_t k = 0; k < w_ / apart; ++k)
            sum += u[i * (w_ / apart) + k] * phi(h_, (y + h_ - apart * i) % h_) *
                   phi(w_, (z + w_ - apart * k) % w_);
        out.push_back(sum * static_cast<double>(apart * apart));
      }
  }
  std::size_t image_height_, image_width_, h_, w_;
};

// Radix 4, 2 and 3 on both planes; the larger torus has radix 5 too.
TEST(Scattering, IsTheFormulaEvaluatedPixelByPixel) {
  for (const auto& [height, width, tall, wide] :
       {std::array<std::size_t, 4>{8, 8, 12, 12}, {9, 16, 16, 20}}) {
    const Scattering scattering(height, width);
    const std::vector<float> x = noise(height * width, 7);
    std::vector<float> out(scattering.size());
    scattering.apply(x, 1, out, 1);
    const std::vector<double> expected = Direct(height, width, tall, wide).features(x);
    ASSERT_EQ(expected.size(), out.size());
    double largest = 0;
    for (const double v : expected) largest = std::max(largest, v);
    for (std::size_t i = 0; i < out.size(); ++i)
      EXPECT_NEAR(out[i], expected[i], 2e-6 * largest) << "feature " << i << " of " << height;
  }
}

TEST(Scattering, HasForMnistThe3969FeaturesOf81ChannelsOf7By7) {
  const Scattering scattering(28, 28);
  EXPECT_EQ(scattering.size(), 3969U);
  EXPECT_EQ(scattering.positions(), 49U);
}

TEST(Scattering, MovesByOnePositionWhenTheImageMovesByFourPixels) {
  const std::size_t n = 28, p = 7;
  std::vector<float> image(n * n), moved(n * n);
  const std::vector<float> blob = noise(8 * 8, 3);
  for (std::size_t i = 0; i < 8; ++i)
    for (std::size_t k = 0; k < 8; ++k) {
      image[(i + 8) * n + k + 8] = blob[i * 8 + k];
      moved[(i + 12) * n + k + 8] = blob[i * 8 + k];
    }
  const Scattering scattering(n, n);
  std::vector<float> a(scattering.size()), b(scattering.size());
  scattering.apply(image, 1, a, 1);
  scattering.apply(moved, 1, b, 1);
  for (std::size_t c = 0; c < Scattering::kChannels; ++c)
    for (std::size_t i = 1; i + 1 < p; ++i)
      for (std::size_t k = 0; k < p; ++k)
        EXPECT_NEAR(a[(c * p + i) * p + k], b[(c * p + i + 1) * p + k], 1e-5) << "channel " << c;
}

TEST(Scattering, OfAConstantImageIsTheConstantInOrderZeroAndNothingElse) {
  const Scattering scattering(28, 28);
  const std::vector<float> x(28 * 28, 0.75f);
  std::vector<float> out(scattering.size());
  scattering.apply(x, 1, out, 1);
  for (std::size_t i = 0; i < out.size(); ++i)
    EXPECT_NEAR(out[i], i < scattering.positions() ? 0.75 : 0.0, 2e-6);
}

TEST(Scattering, HasTheSameBitsForAnyNumberOfThreadsAndAnyCut) {
  const Scattering scattering(12, 16);
  const std::size_t records = 37, pixels = 12 * 16;
  const std::vector<float> x = noise(records * pixels, 5);
  std::vector<float> whole(records * scattering.size()), other(whole.size());
  scattering.apply(x, records, whole, 1);
  scattering.apply(x, records, other, 5);
  EXPECT_EQ(std::memcmp(whole.data(), other.data(), whole.size() * sizeof(float)), 0);
  for (std::size_t i = 0; i < records; ++i)
    scattering.apply(std::span(x).subspan(i * pixels, pixels), 1,
                     std::span(other).subspan(i * scattering.size(), scattering.size()), 1);
  EXPECT_EQ(std::memcmp(whole.data(), other.data(), whole.size() * sizeof(float)), 0);
}

TEST(Scattering, RefusesWhatIsNoImageItKnows) {
  EXPECT_THROW(Scattering(7, 28), Error);
  EXPECT_THROW(Scattering(28, 513), Error);
  const Scattering scattering(8, 8);
  std::vector<float> x(64), out(scattering.size() - 1);
  EXPECT_THROW(scattering.apply(x, 1, out, 1), Error);
}

}  // namespace
}  // namespace discreet::data
