#include "discreet/random/discrete.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

#include "discreet/base/error_testing.h"
#include "discreet/random/exact.h"
#include "discreet/random/skellam.h"
#include "discreet/random/statistics_testing.h"

namespace discreet::random {
namespace {

using testing::kNormalLimit;

constexpr std::array kAlgorithms = {Algorithm::kPhilox4x32, Algorithm::kAes128Ctr,
                                    Algorithm::kChaCha20};

Generator generator_of(Algorithm algorithm, std::uint64_t seed = 1) {
  return Generator(algorithm, Key::from_seed(seed).derive(stream::kNoise));
}

using Family = void (*)(const Generator&, const Position&, Rational, std::span<std::int64_t>, int);
constexpr Family kFamilies[] = {discrete_laplace, discrete_gaussian, rounded_gaussian, skellam};

std::vector<std::int64_t> draw(Family family, Rational parameter, std::size_t n = 100'000,
                               std::uint64_t seed = 1) {
  std::vector<std::int64_t> out(n);
  family(generator_of(Algorithm::kPhilox4x32, seed), Position::at(1, 1), parameter, out, 2);
  return out;
}

// Normalises weights over a range that holds all but a negligible part of the mass.
std::function<double(std::int64_t)> normalised(const std::function<double(std::int64_t)>& weight,
                                               std::int64_t reach) {
  double total = 0;
  for (std::int64_t y = -reach; y <= reach; ++y) total += weight(y);
  return [=](std::int64_t y) { return weight(y) / total; };
}

TEST(DiscreteLaplace, FollowsItsLaw) {
  for (const Rational scale : {Rational{1, 1}, {1, 3}, {7, 2}, {40, 1}}) {
    const double b = static_cast<double>(scale.numerator) / static_cast<double>(scale.denominator);
    const auto pmf = normalised(
        [b](std::int64_t y) { return std::exp(-std::abs(static_cast<double>(y)) / b); }, 2000);
    EXPECT_LT(
        std::abs(testing::chi_square_deviate(draw(discrete_laplace, scale), pmf, -1000, 1000)),
        kNormalLimit)
        << b;
  }
}

TEST(DiscreteGaussian, FollowsItsLaw) {
  for (const Rational variance : {Rational{1, 1}, {1, 7}, {13, 2}, {2500, 1}, {1000003, 1009}}) {
    const double v =
        static_cast<double>(variance.numerator) / static_cast<double>(variance.denominator);
    const auto pmf = normalised(
        [v](std::int64_t y) { return std::exp(-static_cast<double>(y * y) / (2 * v)); }, 2000);
    EXPECT_LT(
        std::abs(testing::chi_square_deviate(draw(discrete_gaussian, variance), pmf, -1000, 1000)),
        kNormalLimit)
        << v;
  }
}

TEST(DiscreteGaussian, HasTheMomentsOfItsLawAtTheLargestScale) {
  const Rational variance{std::uint64_t{1} << 53, 1};
  const double s = std::sqrt(0x1p53);
  double m1 = 0, m2 = 0;
  const std::size_t n = 50'000;
  for (const std::int64_t y : draw(discrete_gaussian, variance, n)) {
    m1 += static_cast<double>(y) / s;
    m2 += static_cast<double>(y) / s * static_cast<double>(y) / s;
  }
  EXPECT_LT(std::abs(m1) / std::sqrt(n), kNormalLimit);
  EXPECT_LT(std::abs(m2 - n) / std::sqrt(2.0 * n), kNormalLimit);
}

TEST(RoundedGaussian, FollowsTheGaussianMassOfEachCell) {
  for (const Rational stddev : {Rational{1, 1}, {1, 3}, {5, 2}, {50, 1}, {22, 7}}) {
    const double s =
        static_cast<double>(stddev.numerator) / static_cast<double>(stddev.denominator);
    const auto pmf = [s](std::int64_t y) {
      const double a = std::abs(static_cast<double>(y));
      const auto upper = [s](double x) { return 0.5 * std::erfc(x / s / std::numbers::sqrt2); };
      return upper(a - 0.5) - upper(a + 0.5);
    };
    EXPECT_LT(std::abs(testing::chi_square_deviate(draw(rounded_gaussian, stddev), pmf, -500, 500)),
              kNormalLimit)
        << s;
  }
}

TEST(RoundedGaussian, IsAGaussianAtTheLargestAndTheFinestScale) {
  // So many cells that the values are Gaussian to within 1e-14: Kolmogorov applies.
  const Rational stddev{std::uint64_t{1} << 53, 3};
  std::vector<double> sample;
  for (const std::int64_t y : draw(rounded_gaussian, stddev, 50'000)) {
    sample.push_back(static_cast<double>(y) * 3 * 0x1p-53);
  }
  EXPECT_LT(testing::kolmogorov(sample,
                                [](double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }),
            testing::kKolmogorovLimit);
  for (const std::int64_t y : draw(rounded_gaussian, {1, std::uint64_t{1} << 53}, 1000)) {
    EXPECT_EQ(y, 0) << "2^52 standard deviations from the next integer";
  }
}

TEST(Skellam, FollowsItsLaw) {
  for (const Rational variance : {Rational{2, 1}, {1, 2}, {90, 1}, {1001, 10}}) {
    const double mu =
        static_cast<double>(variance.numerator) / static_cast<double>(variance.denominator);
    const auto pmf = [mu](std::int64_t y) {  // e^-mu I_|y|(mu)
      const double k = std::abs(static_cast<double>(y));
      double term = std::exp(-mu + k * std::log(mu / 2) - std::lgamma(k + 1)), sum = term;
      for (int i = 1; i < 500; ++i) sum += term *= mu * mu / 4 / (i * (i + k));
      return sum;
    };
    EXPECT_LT(std::abs(testing::chi_square_deviate(draw(skellam, variance), pmf, -150, 150)),
              kNormalLimit)
        << mu;
  }
}

TEST(PoissonTable, HasThePoissonProbabilities) {
  for (const Rational rate : {Rational{1, 1}, {1, 1000}, {45, 1}, {12345, 10}}) {
    const double lambda =
        static_cast<double>(rate.numerator) / static_cast<double>(rate.denominator);
    const PoissonTable table(rate);
    double total = 0;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const auto k = static_cast<double>(table.first() + i);
      const double expected = std::exp(-lambda + k * std::log(lambda) - std::lgamma(k + 1));
      ASSERT_NEAR(table.probability(i), expected, 1e-10 * expected + 0x1p-180)
          << "rate " << lambda << " k " << k;
      total += table.probability(i);
    }
    EXPECT_NEAR(total, 1, 1e-12);
    EXPECT_TRUE(table.first() == 0 || lambda > 100) << "nothing is cut off below";
  }
}

TEST(PoissonTable, LosesLessThanTwoToTheMinus170) {
  // The bound of skellam.md from the tables themselves: 3(J + 1)²/S with at most `size` entries on
  // a side, and S = 2^192 / P(mode).
  const std::uint64_t large = std::uint64_t{1} << 24;
  for (const Rational rate : {Rational{1, 1}, {1, large}, {100, 1}, {large, 1}, {large - 1, 3}}) {
    const PoissonTable table(rate);
    const std::size_t mode = rate.numerator / rate.denominator - table.first();
    const double side = static_cast<double>(std::max(mode, table.size() - mode));
    EXPECT_LT(3 * (side + 1) * (side + 1) * 0x1p-192 * table.probability(mode), 0x1p-170);
  }
}

TEST(Discrete, HasTheSameBitsForAnyThreadsAndAnySplitOnEveryGenerator) {
  for (const Algorithm algorithm : kAlgorithms) {
    const Generator g = generator_of(algorithm);
    for (const Family family : kFamilies) {
      const Position p = Position::at(2, 3, 77);
      const std::size_t n = 4001;  // enough for seven threads
      std::vector<std::int64_t> whole(n), other(n);
      family(g, p, {9, 2}, whole, 1);
      for (const int threads : {2, 7}) {
        family(g, p, {9, 2}, other, threads);
        EXPECT_EQ(other, whole);
      }
      std::vector<std::int64_t> cut(n);
      for (std::size_t at = 0, size = 1; at < n; at += size, size = size * 3 % 700 + 1) {
        family(g, p.from(p.coordinate + at), {9, 2},
               std::span(cut).subspan(at, std::min(size, n - at)), 1);
      }
      EXPECT_EQ(cut, whole);
    }
  }
}

TEST(Discrete, RefusesParametersOutOfRangeAndWritesNothing) {
  const Generator g = generator_of(Algorithm::kPhilox4x32);
  const std::uint64_t large = (std::uint64_t{1} << 53) + 1;
  for (const Family family : kFamilies) {
    for (const Rational bad : {Rational{0, 1}, {1, 0}, {large, 1}, {1, large}}) {
      std::vector<std::int64_t> out(10, 5);
      try {
        family(g, Position{}, bad, out, 1);
        ADD_FAILURE() << bad.numerator << "/" << bad.denominator;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
      }
      EXPECT_EQ(out, std::vector<std::int64_t>(10, 5));
    }
  }
}

TEST(Rational, IsTheBinary64ValueOrTheNextOneAbove) {
  for (const double x : {1.0, 0.5, 3.5, 1e6, 0x1p-53, 0x1p53, 123456.789, 0.1 + 0.5, 0x1p52 + 1}) {
    const Rational r = Rational::at_least(x);
    EXPECT_EQ(static_cast<double>(r.numerator) / static_cast<double>(r.denominator), x);
    EXPECT_LE(r.numerator, std::uint64_t{1} << 53);
    EXPECT_LE(r.denominator, std::uint64_t{1} << 53);
  }
  EXPECT_EQ(Rational::at_least(0.75).numerator, 3u);
  EXPECT_EQ(Rational::at_least(0.75).denominator, 4u);
  for (const double x : {0.1, 1e-9, 0x1p-60, 5e-324}) {
    const Rational r = Rational::at_least(x);
    const long double got = static_cast<long double>(r.numerator) / r.denominator;
    EXPECT_GE(got, static_cast<long double>(x));
    EXPECT_LE(got, static_cast<long double>(x) + 0x1p-53L);
  }
  const auto code = [](double x) { return code_of([&] { Rational::at_least(x); }); };
  EXPECT_EQ(code(std::nan("")), ErrorCode::kNanInSigma);
  EXPECT_EQ(code(HUGE_VAL), ErrorCode::kNanInSigma);
  for (const double bad : {0.0, -1.0, 0x1.0000000000001p53}) {
    EXPECT_EQ(code(bad), ErrorCode::kInvalidDpConfig) << bad;
  }
}

TEST(Exact, CoinsHaveTheirProbabilities) {
  const Generator g = generator_of(Algorithm::kPhilox4x32, 4);
  BlockSource source(g);
  const std::pair<Uint128, Uint128> arguments[] = {
      {0, 1}, {1, 2}, {1, 1}, {5, 2}, {(Uint128{1} << 100) / 3, Uint128{1} << 100}};
  const double n = 100'000;
  for (const auto& [a, b] : arguments) {
    const double p = std::exp(-static_cast<double>(a) / static_cast<double>(b));
    double heads = 0;
    for (std::uint64_t i = 0; i < n; ++i) {
      WordReader words(source, Position{}, i);
      heads += bernoulli_exp_minus(words, a, b);
    }
    EXPECT_LE(std::abs(heads - n * p), kNormalLimit * std::sqrt(n * p * (1 - p)));
  }
}

TEST(Exact, UniformIntegersCoverTheirRangeEvenly) {
  const Generator g = generator_of(Algorithm::kPhilox4x32, 5);
  BlockSource source(g);
  for (const std::int64_t bound : {1, 2, 3, 7, 64, 100}) {
    std::vector<std::int64_t> sample;
    for (std::uint64_t i = 0; i < 50'000; ++i) {
      WordReader words(source, Position{}, i);
      sample.push_back(static_cast<std::int64_t>(
          uniform_below(words, Uint128{static_cast<std::uint64_t>(bound)} << 70) >> 70));
      sample.push_back(
          static_cast<std::int64_t>(uniform_below(words, static_cast<std::uint64_t>(bound))));
    }
    for (const std::int64_t y : sample) ASSERT_TRUE(y >= 0 && y < bound);
    if (bound == 1) continue;
    EXPECT_LT(
        std::abs(testing::chi_square_deviate(
            sample, [=](std::int64_t) { return 1.0 / static_cast<double>(bound); }, 0, bound - 1)),
        kNormalLimit);
  }
}

}  // namespace
}  // namespace discreet::random
