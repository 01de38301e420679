#include "discreet/accounting/tradeoff/fdp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "discreet/accounting/tradeoff/gdp.h"
#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {
namespace {

double gaussian(double mu, double alpha) {
  return 0.5 * std::erfc((mu + numerics::normal_quantile(alpha)) / std::sqrt(2.0));
}

TEST(Fdp, GaussianCurveIsEnclosed) {
  for (const double mu : {0.0, 0.3, 1.0, 5.0}) {
    for (const double alpha : {1e-12, 0.01, 0.5, 0.9, 0.999}) {
      const Interval f = gaussian_tradeoff(mu, alpha);
      EXPECT_LE(f.lower, gaussian(mu, alpha) * (1 + 1e-13));
      EXPECT_GE(f.upper, gaussian(mu, alpha) * (1 - 1e-13));
      EXPECT_LE(f.upper - f.lower, 1e-13);
    }
  }
  EXPECT_EQ(gaussian_tradeoff(1, 0).upper, 1);
  EXPECT_EQ(gaussian_tradeoff(1, 1).lower, 0);
}

TEST(Fdp, SupportingLinesStayBelowTheGaussianAndComeClose) {
  std::vector<double> epsilons;
  for (int i = 0; i <= 200; ++i) epsilons.push_back(0.05 * i);
  const TradeoffCurve curve([](double e) { return gaussian_delta(1, e).upper; }, epsilons);
  for (double alpha = 0; alpha <= 1; alpha += 1.0 / 64) {
    const double exact = gaussian_tradeoff(1, alpha).lower;
    EXPECT_LE(curve(alpha), exact + 1e-15) << alpha;
    EXPECT_GE(curve(alpha), exact - 2e-4) << alpha;
  }
}

TEST(Fdp, FullBatchesComposeToOneGaussian) {
  const TradeoffCurve curve = tradeoff_curve({{{1, 4, 9}, {1, 8, 28}}, {}}, 200);
  const double mu = std::sqrt(9.0 / 16 + 28.0 / 64);
  for (double alpha = 0.01; alpha < 1; alpha += 0.07) {
    EXPECT_LE(curve(alpha), gaussian_tradeoff(mu, alpha).upper);
    EXPECT_GE(curve(alpha), gaussian_tradeoff(mu, alpha).lower - 1e-3);
  }
}

// C_q(G_mu): f_q = q G + (1-q) Id up to the fixed point x* of G, slope -1 to f_q(x*), the inverse.
double subsampled(double rate, double mu, double alpha) {
  const auto f = [&](double x) { return rate * gaussian(mu, x) + (1 - rate) * (1 - x); };
  const double fixed = 0.5 * std::erfc(mu / 2 / std::sqrt(2.0));  // G(x) = x
  if (alpha <= fixed) return f(alpha);
  if (alpha <= f(fixed)) return fixed + f(fixed) - alpha;
  double low = 0;
  double high = fixed;
  for (int i = 0; i < 100; ++i) (f(0.5 * (low + high)) > alpha ? low : high) = 0.5 * (low + high);
  return low;
}

TEST(Fdp, OnePoissonStepIsTheSubsampledCurve) {
  const TradeoffCurve curve = tradeoff_curve({{{0.2, 0.8, 1}}, {}}, 400);
  for (double alpha = 0.005; alpha < 1; alpha += 0.035) {
    const double exact = subsampled(0.2, 1 / 0.8, alpha);
    EXPECT_LE(curve(alpha), exact + 1e-12) << alpha;
    EXPECT_GE(curve(alpha), exact - 1e-3) << alpha;
  }
}

TEST(Fdp, ComposedCurveIsConvexAndBelowTheDiagonal) {
  const TradeoffCurve curve = tradeoff_curve({{{0.02, 1, 500}}, {}});
  for (double alpha = 0.01; alpha < 0.99; alpha += 0.01) {
    EXPECT_LE(curve(alpha), 1 - alpha);
    EXPECT_LE(2 * curve(alpha), curve(alpha - 0.01) + curve(alpha + 0.01) + 1e-14);
    EXPECT_GE(curve(alpha - 0.01), curve(alpha));
  }
}

TEST(Fdp, RefusesNonsense) {
  EXPECT_THROW(gaussian_tradeoff(NAN, 0.5), Error);
  EXPECT_THROW(gaussian_tradeoff(1, 1.5), Error);
  EXPECT_THROW(TradeoffCurve([](double) { return 0.0; }, {}), Error);
  const double zero = 0;
  EXPECT_THROW(TradeoffCurve([](double) { return 0.0; }, {&zero, 1})(NAN), Error);
}

}  // namespace
}  // namespace discreet::accounting
