#include "discreet/accounting/tradeoff/gdp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "discreet/accounting/golden_testing.h"
#include "discreet/base/error.h"

namespace discreet::accounting {
namespace {

TEST(Gdp, EnclosesTheFortyDigitDelta) {
  for (const auto& [mu, epsilon, delta] : golden_rows<3>("gaussian.txt")) {
    const Interval found = gaussian_delta(mu, epsilon);
    SCOPED_TRACE(testing::Message() << mu << " " << epsilon);
    EXPECT_LE(found.lower, delta * (1 + 2e-16));
    EXPECT_GE(found.upper, delta * (1 - 2e-16));
    const double ratio = epsilon / mu;
    EXPECT_LE(found.upper - found.lower,
              2e-14 * (1 + ratio * ratio * ratio) / std::min(1.0, mu) * delta);
  }
}

TEST(Gdp, InvertsWithinAHair) {
  for (const auto& [mu, epsilon, delta] : golden_rows<3>("gaussian.txt")) {
    if (!(delta < 0.9) || delta < 1e-300) continue;
    const Interval found = gaussian_epsilon(mu, delta);
    SCOPED_TRACE(testing::Message() << mu << " " << epsilon);
    EXPECT_LE(found.lower, epsilon + 1e-12 * epsilon);
    EXPECT_GE(found.upper, epsilon - 1e-12 * epsilon);
    EXPECT_LE(found.upper - found.lower, 1e-9 * epsilon + 1e-10 * mu);
  }
}

TEST(Gdp, MatchesPublishedValues) {
  EXPECT_NEAR(gaussian_delta(1, 1).upper, 0.1269367375, 1e-10);
  // opacus accountants_test says the central limit epsilon lies in (6.59, 6.6).
  const GaussianSteps steps{0.04, 1.5, 2249};
  EXPECT_NEAR(clt_epsilon(clt_mu_poisson({&steps, 1}), 1e-5).not_a_bound(), 6.599821, 1e-6);
}

TEST(Gdp, CentralLimitFormulasAreWhatTheyAreCalled) {
  const GaussianSteps steps{0.1, 2, 100};
  EXPECT_NEAR(clt_mu_poisson({&steps, 1}).value(), std::sqrt(std::expm1(0.25)), 1e-14);
  const auto phi = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  EXPECT_NEAR(clt_mu_uniform({&steps, 1}).value(),
              std::sqrt(2 * (std::exp(0.25) * phi(0.75) + 3 * phi(-0.25) - 2)), 1e-14);
  // Far too low where batches are rare: 1.505 is claimed, 2.456 is true.
  const GaussianSteps rare{0.001, 0.6, 10000};
  EXPECT_NEAR(clt_epsilon(clt_mu_poisson({&rare, 1}), 1e-5).not_a_bound(), 1.505, 1e-3);
}

TEST(Gdp, AnApproximationConvertsToNoBound) {
  static_assert(!std::is_convertible_v<CltEpsilon, double>);
  static_assert(!std::is_convertible_v<CltEpsilon, Interval>);
  static_assert(!std::is_convertible_v<CltMu, double>);
  static_assert(!std::is_convertible_v<double, CltMu>);
}

TEST(Gdp, GivesZeroWhereDeltaExceedsTheTotalVariation) {
  EXPECT_EQ(gaussian_epsilon(0, 1e-9).upper, 0);
  EXPECT_EQ(gaussian_epsilon(1e-3, 0.01).upper, 0);
}

TEST(Gdp, RefusesBadArguments) {
  EXPECT_THROW(gaussian_delta(NAN, 1), Error);
  EXPECT_THROW(gaussian_delta(1, -1), Error);
  EXPECT_THROW(gaussian_epsilon(1, 0), Error);
  EXPECT_THROW(gaussian_epsilon(1, NAN), Error);
  EXPECT_THROW(gaussian_epsilon(INFINITY, 0.1), Error);
  EXPECT_THROW(gaussian_epsilon(1e200, 1e-5), Error);
}

}  // namespace
}  // namespace discreet::accounting
