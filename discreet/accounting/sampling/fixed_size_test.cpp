#include "discreet/accounting/sampling/fixed_size.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "discreet/accounting/sampling/subsampled_law_impl.h"
#include "discreet/base/error.h"

namespace discreet::accounting {
namespace {

double normal_tail(double x) { return 0.5 * std::erfc(x / std::sqrt(2)); }

// Closed form of one Poisson-subsampled Gaussian step.
double poisson_remove(double q, double sigma, double epsilon) {
  if (epsilon <= std::log1p(-q)) return 1 - std::exp(epsilon);
  const double x = sigma * sigma * std::log1p(std::expm1(epsilon) / q) + 0.5;
  return q * normal_tail((x - 1) / sigma) + (1 - q - std::exp(epsilon)) * normal_tail(x / sigma);
}
double poisson_add(double q, double sigma, double epsilon) {
  return 1 - std::exp(epsilon) + std::exp(epsilon) * poisson_remove(q, sigma, -epsilon);
}

Interval poisson_epsilon(double q, double sigma, std::uint64_t steps, double delta,
                         Direction direction, double step) {
  const double cut = 1e-6 * delta / (30 * double(steps));
  const LossLaw up = loss_of(subsampled_law(q, sigma, step, cut, Rounding::kUp), direction);
  const LossLaw down = loss_of(subsampled_law(q, sigma, step, cut, Rounding::kDown), direction);
  const LossCopies above{&up, steps}, below{&down, steps};
  const double order = order_for_delta({&above, 1}, delta);
  const double upper = LossSum({&above, 1}, order).epsilon_upper(delta);
  return {LossSum({&below, 1}, order).epsilon_lower(delta, upper), upper};
}

TEST(SubsampledLaw, ContainsTheClosedFormOfOneStep) {
  for (const double q : {1e-3, 0.01, 0.3, 0.999, 1.0})
    for (const double sigma : {0.3, 1.0, 4.0})
      for (const double epsilon : {0.0, 0.1, 1.0, 3.0})
        for (const Direction direction : {Direction::kRemove, Direction::kAdd}) {
          const double exact = direction == Direction::kRemove ? poisson_remove(q, sigma, epsilon)
                                                               : poisson_add(q, sigma, epsilon);
          if (exact < 1e-12) continue;
          const double step = 0x1p-8;
          const LossLaw up =
              loss_of(subsampled_law(q, sigma, step, 1e-20, Rounding::kUp), direction);
          const LossLaw down =
              loss_of(subsampled_law(q, sigma, step, 1e-20, Rounding::kDown), direction);
          const LossCopies above{&up, 1}, below{&down, 1};
          const double order = order_for_epsilon({&above, 1}, epsilon);
          const double upper = LossSum({&above, 1}, order).delta_upper(epsilon);
          const double lower = LossSum({&below, 1}, order).delta_lower(epsilon);
          EXPECT_GE(upper, exact - 1e-14) << q << ' ' << sigma << ' ' << epsilon;
          EXPECT_LE(lower, exact + 1e-14) << q << ' ' << sigma << ' ' << epsilon;
          EXPECT_LE(upper - lower, 0.02 * exact + 3e-4) << q << ' ' << sigma << ' ' << epsilon;
        }
}

TEST(FixedSize, AddRemoveIsPoissonAtHalfTheNoise) {
  const GaussianSteps steps = fixed_size_add_remove(0.01, 1.0, 1000);
  EXPECT_EQ(steps, (GaussianSteps{0.01, 0.5, 1000}));
  const struct {
    double q, sigma;
    std::uint64_t count;
    double delta, remove, add;
  } known[] = {{.01, 1, 1000, 1e-5, 13.361, 4.316},
               {.01, 2, 1000, 1e-5, 1.828, 1.417},
               {.1, 4, 500, 1e-6, 6.217, 5.488}};
  for (const auto& row : known) {
    const GaussianSteps s = fixed_size_add_remove(row.q, row.sigma, row.count);
    const Interval r =
        poisson_epsilon(s.rate, s.sigma, s.count, row.delta, Direction::kRemove, 0x1p-11);
    const Interval a =
        poisson_epsilon(s.rate, s.sigma, s.count, row.delta, Direction::kAdd, 0x1p-11);
    EXPECT_LE(r.lower, row.remove + 6e-4);
    EXPECT_GE(r.upper, row.remove - 6e-4);
    EXPECT_LE(a.lower, row.add + 6e-4);
    EXPECT_GE(a.upper, row.add - 6e-4);
    EXPECT_LE(r.upper - r.lower, 1e-2);
    EXPECT_LE(a.upper - a.lower, 1e-2);
  }
}

// Published rows: the lower ends are estimates to three digits.
TEST(FixedSize, ReplaceOneMatchesTheReferenceRows) {
  const struct {
    double q, sigma;
    std::uint64_t count;
    double delta;
    Interval known;
  } rows[] = {{.01, 1, 1000, 1e-5, {13.360, 14.821}},
              {.01, 2, 1000, 1e-5, {1.828, 2.200}},
              {.1, 4, 500, 1e-6, {6.216, 6.993}}};
  for (const auto& row : rows) {
    const Interval e =
        fixed_size_replace_one_epsilon({row.q, row.sigma, row.count}, row.delta, 1e-3);
    EXPECT_NEAR(e.lower, row.known.lower, 2e-3 * row.known.lower);
    EXPECT_NEAR(e.upper, row.known.upper, 2e-3 * row.known.upper);
    EXPECT_LE(e.lower, row.known.upper);
  }
}

TEST(FixedSize, OfTheWholeDataIsAGaussianOfTwiceTheSensitivity) {
  for (const double sigma : {2.0, 10.0}) {
    const double mu = 2 * std::sqrt(20.0) / sigma;
    const Interval e = fixed_size_replace_one_epsilon({1, sigma, 20}, 1e-6, 1e-3);
    const auto delta = [&](double x) {
      return normal_tail(x / mu - mu / 2) - std::exp(x) * normal_tail(x / mu + mu / 2);
    };
    EXPECT_GE(delta(e.lower), 1e-6 * (1 - 1e-9));
    EXPECT_LE(delta(e.upper), 1e-6 * (1 + 1e-9));
    EXPECT_LE(e.upper - e.lower, 4e-3 * e.upper);
  }
}

// One step in one dimension, every triple of gradients in [-C, C] on a grid: no pair may exceed the
// spliced profile, and the pair +C against -C attains Poisson's.
TEST(FixedSize, SplicedProfileDominatesEveryTripleOfGradients) {
  const double q = 0.2, sigma = 1.0;
  const LossLaw spliced = spliced_loss(q, sigma / 2, 0x1p-9, 1e-20);
  const LossCopies one{&spliced, 1};
  for (const double epsilon : {0.05, 0.5, 1.5}) {
    const double bound =
        LossSum({&one, 1}, order_for_epsilon({&one, 1}, epsilon)).delta_upper(epsilon);
    EXPECT_NEAR(bound, poisson_remove(q, sigma / 2, epsilon), 1e-5);
    double worst = 0;
    for (double other = -1; other <= 1; other += 0.5)
      for (double x = -1; x <= 1; x += 0.5)
        for (double y = -1; y <= 1; y += 0.5) {
          double delta = 0;
          const double h = 0.01;
          for (double at = -9; at < 9; at += h) {
            const auto bell = [&](double mean) {
              const double z = (at - mean) / sigma;
              return std::exp(-0.5 * z * z) / (sigma * std::sqrt(2 * M_PI));
            };
            const double p = (1 - q) * bell(other) + q * bell(x);
            const double r = (1 - q) * bell(other) + q * bell(y);
            delta += h * std::max(0.0, p - std::exp(epsilon) * r);
          }
          worst = std::max(worst, delta);
        }
    EXPECT_LE(worst, bound + 1e-5);
    EXPECT_GE(worst, bound - 2e-4) << "the bound is attained in one step";
  }
}

TEST(FixedSize, IntervalsFromThreeWidthsAreConsistentOnRandomSettings) {
  std::mt19937_64 random(11);
  const auto log_uniform = [&](double low, double high) {
    return low * std::exp(std::uniform_real_distribution<>(0, std::log(high / low))(random));
  };
  for (int k = 0; k < 30; ++k) {
    const FixedSizeSteps steps{log_uniform(1e-3, 1), log_uniform(0.6, 16),
                               std::uint64_t(log_uniform(1, 3000))};
    const double delta = log_uniform(1e-12, 1e-3);
    double lower = 0, upper = HUGE_VAL;
    for (const double width : {0.1, 0.03, 0.01}) {
      const Interval e = fixed_size_replace_one_epsilon(steps, delta, width);
      lower = std::max(lower, e.lower);
      upper = std::min(upper, e.upper);
    }
    EXPECT_LE(lower, upper) << steps.rate << ' ' << steps.sigma << ' ' << steps.steps << ' '
                            << delta;
    const Interval poisson =
        poisson_epsilon(steps.rate, steps.sigma / 2, steps.steps, delta, Direction::kAdd, 0x1p-9);
    EXPECT_LE(poisson.lower, upper) << "the pair swapped is realised too";
  }
}

TEST(FixedSize, SurvivesExtremeSettings) {
  for (const FixedSizeSteps& steps :
       {FixedSizeSteps{1e-9, 0.1, 1}, FixedSizeSteps{1, 0.1, 1}, FixedSizeSteps{0.5, 1000, 10},
        FixedSizeSteps{1e-4, 5, std::uint64_t{1} << 24}}) {
    const Interval e = fixed_size_replace_one_epsilon(steps, 1e-8, 0.1);
    EXPECT_LE(e.lower, e.upper);
  }
}

// The full batch is a Gaussian of mu = 20. Its outcomes lie where the density without the record is
// not a normal number. Mass that the grid cannot hold must be charged, not lost.
TEST(FixedSize, DoesNotLoseWhatUnderflows) {
  EXPECT_GE(fixed_size_replace_one_epsilon({1, 0.1, 1}, 1e-100, 0.1).upper, 624.788065369);
  EXPECT_GE(fixed_size_replace_one_epsilon({1, 0.1, 1}, 1e-70, 0.1).upper, 554.117143672);
  const Interval within = fixed_size_replace_one_epsilon({1, 0.1, 1}, 1e-60, 1e-3);
  EXPECT_LE(within.lower, 527.215407794);
  EXPECT_GE(within.upper, 527.215407793);
  EXPECT_LE(within.upper, 527.3);
}

TEST(FixedSize, RefusesArgumentsOutsideTheirRange) {
  EXPECT_THROW(fixed_size_add_remove(0, 1, 1), Error);
  EXPECT_THROW(fixed_size_add_remove(1, 1, 1), Error);
  EXPECT_THROW(fixed_size_add_remove(NAN, 1, 1), Error);
  EXPECT_THROW(fixed_size_add_remove(0.1, 0, 1), Error);
  EXPECT_THROW(fixed_size_add_remove(0.1, INFINITY, 1), Error);
  EXPECT_THROW(fixed_size_add_remove(0.1, 1, 0), Error);
  EXPECT_THROW(fixed_size_replace_one_epsilon({1.1, 1, 1}, 1e-5, 1e-2), Error);
  EXPECT_THROW(fixed_size_replace_one_epsilon({0.1, 0.01, 1}, 1e-5, 1e-2), Error);
  EXPECT_THROW(fixed_size_replace_one_epsilon({0.1, 1, 0}, 1e-5, 1e-2), Error);
  EXPECT_THROW(fixed_size_replace_one_epsilon({0.1, 1, 1}, 0, 1e-2), Error);
  EXPECT_THROW(fixed_size_replace_one_epsilon({0.1, 1, 1}, 1e-5, NAN), Error);
}

}  // namespace
}  // namespace discreet::accounting
