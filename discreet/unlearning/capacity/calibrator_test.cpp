#include "discreet/unlearning/capacity/calibrator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "discreet/base/error.h"

namespace discreet::unlearning {
namespace {

using Vector = std::vector<double>;

// n observations with gradient norms 1, 2, ..., n and theta moving along the first axis.
Calibrator observed(int n, CalibratorOptions options = {}) {
  Calibrator calibrator(options);
  for (int i = 1; i <= n; ++i) {
    calibrator.observe(Vector{0.6 * i, 0.8 * i}, Vector{0.1 * i, 0.0});
  }
  return calibrator;
}

bool warns(const CalibrationStats& stats, const std::string& words) {
  return std::any_of(stats.warnings.begin(), stats.warnings.end(),
                     [&](const std::string& w) { return w.find(words) != std::string::npos; });
}

TEST(Calibrator, GIsTheInterpolatedQuantileAndDTheLargestDistanceFromTheFirst) {
  const auto stats = observed(100).finalize(1, CurvatureBounds{0.5, 8});
  EXPECT_NEAR(stats.constants.G, 95.05, 1e-12);  // numpy.quantile(arange(1, 101), .95)
  EXPECT_NEAR(stats.constants.D, 9.9, 1e-12);
  EXPECT_EQ(stats.constants.c, 0.5);
  EXPECT_EQ(stats.constants.C, 8);
  EXPECT_EQ(stats.N_star, std::ceil(std::pow(95.05 * 9.9 * 2, 2)));
  EXPECT_TRUE(stats.warnings.empty());
  EXPECT_EQ(observed(100, {1.0, {}}).finalize(1, {}).constants.G, 100);
  EXPECT_EQ(Calibrator().options().quantile, 0.95);
}

TEST(Calibrator, KeepsNormsAndCopiesOfTheta) {
  Calibrator calibrator;
  Vector theta{1, 2};
  calibrator.observe(Vector{3, 4}, theta);
  theta[0] = 9;
  EXPECT_EQ(calibrator.grad_norms(), Vector{5});
  EXPECT_EQ(calibrator.thetas(), std::vector<Vector>{(Vector{1, 2})});
  calibrator.clear();
  EXPECT_TRUE(calibrator.grad_norms().empty() && calibrator.thetas().empty());
}

TEST(Calibrator, DCapClampsTheDiameterAndSaysSo) {
  const auto stats = observed(100, {0.95, 2.0}).finalize(1, CurvatureBounds{1, 1});
  EXPECT_EQ(stats.constants.D, 2);
  EXPECT_TRUE(warns(stats, "D_cap"));
}

TEST(Calibrator, WithoutCurvatureItFallsBackToOneAndOneAndSaysSo) {
  for (const auto& curvature :
       {std::optional<CurvatureBounds>{}, {{0.0, 1.0}}, {{2.0, 1.0}}, {{1.0, INFINITY}}}) {
    const auto stats = observed(50).finalize(1, curvature);
    EXPECT_EQ(stats.constants.c, 1);
    EXPECT_EQ(stats.constants.C, 1);
    EXPECT_TRUE(warns(stats, "(1, 1)"));
  }
}

TEST(Calibrator, TooFewPointsFallBackToDefaultsWithAWarning) {
  const auto stats = observed(9).finalize(0.1, CurvatureBounds{3, 4});
  EXPECT_EQ(stats.constants, Constants{});
  EXPECT_EQ(stats.N_star, 100u);
  EXPECT_TRUE(warns(stats, "9 calibration points"));
  EXPECT_EQ(Calibrator().finalize(0.1, {}).N_star, 100u);
  EXPECT_NE(observed(10).finalize(0.1, {}).constants, Constants{});
}

TEST(Calibrator, OneExtremeGradientDoesNotMakeNStarAbsurd) {
  Calibrator calibrator({1.0, {}});
  for (int i = 0; i < 99; ++i) calibrator.observe(Vector{1}, Vector{0.01 * i});
  calibrator.observe(Vector{1e200}, Vector{0});
  const auto stats = calibrator.finalize(1, CurvatureBounds{1, 1});
  EXPECT_EQ(stats.constants.G, 100);
  EXPECT_TRUE(warns(stats, "extreme"));
  EXPECT_LT(stats.N_star, 10000u);
}

TEST(Calibrator, NStarIsPositiveAndMonotoneInGamma) {
  const Calibrator calibrator = observed(200);
  std::uint64_t before = kCountLimit;
  for (double gamma = 1e-9; gamma < 1e9; gamma *= 3) {
    const auto n = calibrator.finalize(gamma, CurvatureBounds{0.2, 5}).N_star;
    EXPECT_GE(n, 1u);
    EXPECT_LE(n, before);
    before = n;
  }
  EXPECT_EQ(before, 1u);
}

TEST(Calibrator, RefusesBadInputAndRecordsNothing) {
  Calibrator calibrator;
  calibrator.observe(Vector{1, 2}, Vector{1, 2});
  EXPECT_THROW(calibrator.observe(Vector{1}, Vector{1}), Error);
  EXPECT_THROW(calibrator.observe(Vector{NAN, 0}, Vector{1, 2}), Error);
  EXPECT_THROW(calibrator.observe(Vector{1, 2}, Vector{INFINITY, 2}), Error);
  EXPECT_EQ(calibrator.grad_norms().size(), 1u);
  EXPECT_EQ(calibrator.thetas().size(), 1u);
  for (const double bad : {0.0, -1.0, double(NAN), double(INFINITY)}) {
    EXPECT_THROW(calibrator.finalize(bad, {}), Error);
    EXPECT_THROW(Calibrator({0.95, bad}), Error);
  }
  for (const double bad : {0.0, 1.5, double(NAN)}) EXPECT_THROW(Calibrator({bad, {}}), Error);
}

}  // namespace
}  // namespace discreet::unlearning
