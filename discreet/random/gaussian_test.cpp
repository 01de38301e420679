#include "discreet/random/gaussian.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <vector>

#include "discreet/base/error.h"
#include "discreet/numerics/targets_testing.h"
#include "discreet/random/gaussian_kernels_impl.h"
#include "discreet/random/laplace.h"
#include "discreet/random/statistics_testing.h"

namespace discreet::random {
namespace {

using testing::kKolmogorovLimit;
using testing::kNormalLimit;

constexpr std::array kAlgorithms = {Algorithm::kPhilox4x32, Algorithm::kAes128Ctr,
                                    Algorithm::kChaCha20};

Generator generator_of(Algorithm algorithm, std::uint64_t seed = 1,
                       std::string_view name = stream::kNoise) {
  return Generator(algorithm, Key::from_seed(seed).derive(name));
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

std::vector<double> draw(const Generator& generator, const Position& position, std::size_t n) {
  std::vector<double> z(n);
  fill_gaussian(generator, position, 1.0, z);
  return z;
}

TEST(Gaussian, FollowsTheNormalLawOnEveryGenerator) {
  for (const Algorithm algorithm : kAlgorithms) {
    const auto z = draw(generator_of(algorithm), Position::at(1, 2), 200'000);
    EXPECT_LT(testing::kolmogorov(z, normal_cdf), kKolmogorovLimit);
  }
}

TEST(Gaussian, HasTheMomentsOfTheNormalLaw) {
  const double n = 1'000'000;
  const auto z = draw(generator_of(Algorithm::kAes128Ctr), Position::at(3, 0), 1'000'000);
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  for (const double x : z) m1 += x, m2 += x * x, m3 += x * x * x, m4 += x * x * x * x;
  // Var of x^k is E x^2k − (E x^k)²: 1, 2, 15, 96.
  EXPECT_LT(std::abs(m1) / std::sqrt(n), kNormalLimit);
  EXPECT_LT(std::abs(m2 - n) / std::sqrt(2 * n), kNormalLimit);
  EXPECT_LT(std::abs(m3) / std::sqrt(15 * n), kNormalLimit);
  EXPECT_LT(std::abs(m4 - 3 * n) / std::sqrt(96 * n), kNormalLimit);
}

TEST(Gaussian, TailsBeyondFourSigmaAreCountedRight) {
  const std::size_t n = 4'000'000;
  const auto z = draw(generator_of(Algorithm::kPhilox4x32), Position::at(4, 0), n);
  double count = 0;
  for (const double x : z) count += std::abs(x) > 4;
  const double expected = static_cast<double>(n) * std::erfc(4 / std::numbers::sqrt2);  // 253
  EXPECT_LT(std::abs(count - expected) / std::sqrt(expected), 5.2) << count;  // Poisson, 1e-6
}

TEST(Gaussian, CoordinatesStepsTensorsAndStreamsAreIndependent) {
  const std::size_t n = 200'000;
  const Generator noise = generator_of(Algorithm::kAes128Ctr);
  const auto z = draw(noise, Position::at(1, 1), n);
  const auto deviate = [&](const std::vector<double>& other) {
    std::vector<double> squares(n), other_squares(n);
    for (std::size_t i = 0; i < n; ++i) {
      squares[i] = z[i] * z[i];
      other_squares[i] = other[i] * other[i];
    }
    return std::max(std::abs(testing::correlation_deviate(z, other)),
                    std::abs(testing::correlation_deviate(squares, other_squares)));
  };
  EXPECT_LT(deviate(draw(noise, Position::at(2, 1), n)), kNormalLimit) << "steps";
  EXPECT_LT(deviate(draw(noise, Position::at(1, 2), n)), kNormalLimit) << "tensors";
  EXPECT_LT(deviate(draw(generator_of(Algorithm::kAes128Ctr, 1, "other"), Position::at(1, 1), n)),
            kNormalLimit)
      << "streams";
  EXPECT_LT(deviate(draw(noise, Position::at(1, 1, 1), n)), kNormalLimit) << "neighbours";
  EXPECT_LT(deviate(draw(noise, Position::at(1, 1, 2), n)), kNormalLimit) << "pairs";
}

// Box–Muller in long double from the generator's own words: the independent oracle.
std::pair<long double, long double> oracle(BlockSource& source, const Position& p,
                                           std::uint64_t pair) {
  std::array<std::uint64_t, 2> words, further{};
  source.read(p.high, p.block(pair), words);
  if (words[0] < (std::uint64_t{1} << 53)) source.read(p.high, p.reserve(pair), further);
  const long double u = (static_cast<long double>(words[0]) * 0x1p64L + further[0]) * 0x1p-128L;
  const long double r = sqrtl(-2 * logl(u));
  // 52 bits within a quarter turn, then its two mirror images.
  const long double quarter = static_cast<long double>(words[1] & 0xFFFFFFFFFFFFF) * 0x1p-52L;
  const long double angle = std::numbers::pi_v<long double> / 2 * (quarter - 0.5L);
  const long double x = words[1] >> 62 & 1 ? -cosl(angle) : cosl(angle), y = sinl(angle);
  return words[1] >> 63 ? std::pair{r * y, r * x} : std::pair{r * x, r * y};
}

TEST(Gaussian, IsBoxMullerOfTheBlocksWithFurtherBitsNearZero) {
  const Generator generator = generator_of(Algorithm::kPhilox4x32, 5);
  BlockSource source(generator);
  const Position p = Position::at(9, 9);
  const std::size_t n = 400'000;
  const auto z = draw(generator, p, n);
  int rare = 0;
  for (std::size_t k = 0; k < n / 2; ++k) {
    const auto [z0, z1] = oracle(source, p, k);
    const long double r = hypotl(z0, z1);
    rare += r > sqrtl(2 * 11 * std::numbers::ln2_v<long double>);
    // u is rounded to 53 bits, so ln u is off by up to 2^-53, and r by 2^-53/r; then a few ulps.
    const long double tolerance = 0x1p-53L / r + 4 * 0x1p-52L * r;
    ASSERT_NEAR(z[2 * k], z0, tolerance) << k;
    ASSERT_NEAR(z[2 * k + 1], z1, tolerance) << k;
  }
  EXPECT_NEAR(rare, 98, 50) << "200,000 pairs take the extended branch with probability 2^-11";
}

TEST(Gaussian, TailReachesPastTwelveSigma) {
  using kernels::extended_uniform;
  EXPECT_EQ(extended_uniform(0, 0), 0x1p-128);
  EXPECT_EQ(extended_uniform(0, 1), 0x1p-128);
  EXPECT_EQ(extended_uniform(1, 0), 0x1p-64);
  EXPECT_EQ(extended_uniform(1, std::uint64_t{1} << 63), 0x1.8p-64);
  EXPECT_EQ(extended_uniform((std::uint64_t{1} << 53) - 1, ~std::uint64_t{0}), 0x1p-11);
  constexpr std::uint64_t kRight = std::uint64_t{1} << 51;  // the angle 0
  std::array<double, 2> z;
  kernels::box_muller_one(extended_uniform(0, 0), kRight, z.data());
  EXPECT_NEAR(z[0], 13.3209, 1e-4);
  kernels::box_muller_one(extended_uniform(0, std::uint64_t{1} << 40), kRight, z.data());
  EXPECT_NEAR(z[0], std::sqrt(2 * 88 * std::numbers::ln2), 1e-12);
}

TEST(Gaussian, HasTheSameBitsOnEveryTarget) {
  const Generator generator = generator_of(Algorithm::kPhilox4x32, 6);
  const auto wide = draw(generator, Position::at(1, 1, 1), 20'001);
  std::vector<float> native(20'001), added(20'001, 1.0f);
  fill_gaussian_native32(generator, Position::at(1, 1, 1), 1.0f, native);
  add_gaussian(generator, Position::at(1, 1, 1), 0.5, added);
  numerics::for_each_target([&] {
    std::vector<float> other_native(20'001), other_added(20'001, 1.0f);
    fill_gaussian_native32(generator, Position::at(1, 1, 1), 1.0f, other_native);
    add_gaussian(generator, Position::at(1, 1, 1), 0.5, other_added);
    EXPECT_EQ(draw(generator, Position::at(1, 1, 1), 20'001), wide);
    EXPECT_EQ(other_native, native);
    EXPECT_EQ(other_added, added);
  });
}

// Fills a range in one call by one thread, by 2 and 7 threads, and in pieces that start at odd
// coordinates, and expects the same bits.
template <class T>
void expect_same_bits(const std::function<void(const Position&, std::span<T>, int threads)>& fill) {
  const Position p = Position::at(3, 1, 12'345);  // starts inside a pair
  const std::size_t n = 120'007;                  // enough for seven threads
  std::vector<T> whole(n);
  fill(p, whole, 1);
  for (const int threads : {2, 7}) {
    std::vector<T> other(n);
    fill(p, other, threads);
    EXPECT_EQ(other, whole) << threads << " threads";
  }
  std::vector<T> cut(n);
  const std::size_t pieces[] = {1, 2, 3, 5, 255, 1, 1023, 1024, 1025, 7, 2048};
  std::size_t at = 0;
  for (std::size_t i = 0; at < n; ++i) {
    const std::size_t size = std::min(pieces[i % std::size(pieces)], n - at);
    fill(p.from(p.coordinate + at), std::span(cut).subspan(at, size), 1);
    at += size;
  }
  EXPECT_EQ(cut, whole) << "cut into pieces";
}

TEST(Gaussian, HasTheSameBitsForAnyThreadsAndAnySplit) {
  for (const Algorithm algorithm : kAlgorithms) {
    const Generator g = generator_of(algorithm);
    expect_same_bits<double>([&](const Position& p, std::span<double> out, int threads) {
      fill_gaussian(g, p, 2.5, out, threads);
    });
    expect_same_bits<float>([&](const Position& p, std::span<float> out, int threads) {
      fill_gaussian(g, p, 2.5, out, threads);
    });
    expect_same_bits<double>([&](const Position& p, std::span<double> x, int threads) {
      std::fill(x.begin(), x.end(), 0.1);
      add_gaussian(g, p, 2.5, x, threads);
    });
    expect_same_bits<float>([&](const Position& p, std::span<float> x, int threads) {
      std::fill(x.begin(), x.end(), 0.1f);
      add_gaussian(g, p, 2.5, x, threads);
    });
    expect_same_bits<float>([&](const Position& p, std::span<float> out, int threads) {
      fill_gaussian_native32(g, p, 2.5f, out, threads);
    });
    expect_same_bits<double>([&](const Position& p, std::span<double> out, int threads) {
      fill_laplace(g, p, 2.5, out, threads);
    });
    expect_same_bits<double>([&](const Position& p, std::span<double> x, int threads) {
      std::fill(x.begin(), x.end(), 0.1);
      add_laplace(g, p, 2.5, x, threads);
    });
  }
}

TEST(Gaussian, AddAndBinary32AreTheBinary64ValueRoundedOnce) {
  const Generator g = generator_of(Algorithm::kAes128Ctr, 2);
  const Position p = Position::at(1, 1, 3);
  const std::size_t n = 5000;
  const auto z = draw(g, p, n);
  std::vector<double> filled(n), added(n, 0.7);
  std::vector<float> filled32(n), added32(n, 0.7f);
  fill_gaussian(g, p, 1.3, filled);
  fill_gaussian(g, p, 1.3, filled32);
  add_gaussian(g, p, 1.3, added);
  add_gaussian(g, p, 1.3, added32);
  for (std::size_t i = 0; i < n; ++i) {
    ASSERT_EQ(filled[i], 1.3 * z[i]);
    ASSERT_EQ(filled32[i], static_cast<float>(1.3 * z[i]));
    ASSERT_EQ(added[i], 0.7 + 1.3 * z[i]);
    ASSERT_EQ(added32[i], static_cast<float>(double{0.7f} + 1.3 * z[i]));
  }
}

TEST(Gaussian, SequentialOffsetsContinueWhereTheTensorBeforeEnded) {
  const Generator g = generator_of(Algorithm::kPhilox4x32);
  SequentialCounter counter;
  counter.declare(gaussian_indices(7) + gaussian_indices(4));
  const auto first = draw(g, counter.take(gaussian_indices(7)), 7);
  const auto second = draw(g, counter.take(gaussian_indices(4)), 4);
  counter.settle();
  const auto both = draw(g, Position{}, 12);
  EXPECT_EQ(first, std::vector<double>(both.begin(), both.begin() + 7));
  EXPECT_EQ(second, std::vector<double>(both.begin() + 8, both.end()));
}

TEST(Gaussian, RefusesABadScaleAndWritesNothing) {
  const Generator g = generator_of(Algorithm::kPhilox4x32);
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> x(10, 1.0);
  std::vector<float> f(10, 1.0f);
  const std::pair<double, ErrorCode> bad[] = {{std::nan(""), ErrorCode::kNanInSigma},
                                              {inf, ErrorCode::kNanInSigma},
                                              {-inf, ErrorCode::kNanInSigma},
                                              {-1.0, ErrorCode::kInvalidDpConfig}};
  const Position p;
  for (const auto& [stddev, code] : bad) {
    const double s = stddev;
    const std::function<void()> calls[] = {
        [&] { fill_gaussian(g, p, s, x); },
        [&] { fill_gaussian(g, p, s, f); },
        [&] { add_gaussian(g, p, s, x); },
        [&] { add_gaussian(g, p, s, f); },
        [&] { fill_gaussian_native32(g, p, static_cast<float>(s), f); },
        [&] { fill_laplace(g, p, s, x); },
        [&] { add_laplace(g, p, s, x); },
    };
    for (const auto& call : calls) {
      try {
        call();
        ADD_FAILURE() << "accepted " << s;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
      }
    }
  }
  EXPECT_EQ(x, std::vector<double>(10, 1.0));
  EXPECT_EQ(f, std::vector<float>(10, 1.0f));
  EXPECT_THROW(fill_gaussian(g, Position::at(0, 0, 2 * kIndexLimit - 4), 1.0, x), Error);
  add_gaussian(g, p, 0.0, x);
  EXPECT_EQ(x, std::vector<double>(10, 1.0)) << "no noise at stddev 0";
}

TEST(GaussianNative32, FollowsTheNormalLawAndEndsBelowSevenSigma) {
  const Generator g = generator_of(Algorithm::kPhilox4x32, 8);
  std::vector<float> z(1'000'000);
  fill_gaussian_native32(g, Position::at(1, 1), 1.0f, z);
  const std::vector<double> sample(z.begin(), z.begin() + 200'000);
  EXPECT_LT(testing::kolmogorov(sample, normal_cdf), kKolmogorovLimit);
  double m2 = 0;
  for (const float x : z) m2 += double{x} * x;
  EXPECT_LT(std::abs(m2 - 1e6) / std::sqrt(2e6), kNormalLimit);

  alignas(64) std::array<std::uint64_t, kernels::kTileWords> words{};
  alignas(64) std::array<float, 2 * kernels::kTileWords> extreme;
  kernels::box_muller_native32(words.data(), words.size(), extreme.data());
  EXPECT_NEAR(extreme[0], 6.7637, 1e-4) << "the largest value there is";
}

TEST(GaussianNative32, IsWithinAFewUlpsOfBoxMuller) {
  alignas(64) std::array<std::uint64_t, kernels::kTileWords> words;
  alignas(64) std::array<float, 2 * kernels::kTileWords> z;
  const Generator g = generator_of(Algorithm::kPhilox4x32, 9);
  BlockSource source(g);
  source.read(0, 0, words);
  kernels::box_muller_native32(words.data(), words.size(), z.data());
  for (std::size_t i = 0; i < words.size(); ++i) {
    const double u =
        static_cast<float>((static_cast<double>(words[i] & 0xFFFFFFFF) + 0.5) * 0x1p-32);
    const double r = std::sqrt(-2 * std::log(u));
    const double turn = 2 * std::numbers::pi * static_cast<double>(words[i] >> 32) * 0x1p-32;
    ASSERT_NEAR(z[2 * i], r * std::cos(turn), 4e-7 * r) << i;
    ASSERT_NEAR(z[2 * i + 1], r * std::sin(turn), 4e-7 * r) << i;
  }
}

TEST(Laplace, FollowsTheLaplaceLawOnEveryGenerator) {
  for (const Algorithm algorithm : kAlgorithms) {
    std::vector<double> x(200'000);
    fill_laplace(generator_of(algorithm), Position::at(1, 2), 3.0, x);
    EXPECT_LT(
        testing::kolmogorov(
            x, [](double v) { return v < 0 ? 0.5 * std::exp(v / 3) : 1 - 0.5 * std::exp(-v / 3); }),
        kKolmogorovLimit);
  }
}

}  // namespace
}  // namespace discreet::random
