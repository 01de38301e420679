#include "discreet/numerics/roots.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace discreet::numerics {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(FindRoot, BracketsTheRootToNeighbours) {
  SearchOptions exact;
  exact.relative = 0;
  const RootBracket r = find_root([](double x) { return x * x - 2; }, 0, 2, exact);
  EXPECT_TRUE(r.converged);
  EXPECT_EQ(r.lower, 0x1.6a09e667f3bccp0);
  EXPECT_EQ(r.upper, 0x1.6a09e667f3bcdp0);
  EXPECT_LT(r.f_lower, 0);
  EXPECT_GT(r.f_upper, 0);
  EXPECT_LE(r.evaluations, 20);
}

TEST(FindRoot, TakesTheEndsInEitherOrderAndStopsOnAnExactRoot) {
  const RootBracket r = find_root([](double x) { return x - 3; }, 8, -1);
  EXPECT_EQ(r.lower, 3);
  EXPECT_EQ(r.upper, 3);
  EXPECT_EQ(find_root([](double x) { return x; }, 0, 5).evaluations, 2);
}

TEST(FindRoot, AlwaysReturnsASignChange) {
  // Flat, steep, jumping and infinite functions; roots at the far end of the bracket.
  double (*const functions[])(double) = {
      [](double x) { return std::pow(x - 0.3, 9); },
      [](double x) { return x < 0.7 ? -1e-300 : 1e300; },
      [](double x) { return x < 0.25 ? -kInf : x - 0.2; },
      [](double x) { return std::exp(50 * x) - 1e-5 - 1; },
      [](double x) { return std::expm1(x - 1e-9) * 1e-200; },
      [](double x) { return x > 1e-290 ? 1.0 : -1.0; },
      [](double x) { return std::atan(1e9 * (x - 0.999999)); },
  };
  for (const auto f : functions) {
    for (const double relative : {0.0, 1e-3, 1e-12}) {
      SearchOptions options{0, relative, 3000};
      const RootBracket r = find_root(f, 0, 1, options);
      EXPECT_TRUE(r.converged);
      EXPECT_EQ(r.f_lower, f(r.lower));
      EXPECT_EQ(r.f_upper, f(r.upper));
      EXPECT_TRUE(r.f_lower == 0 || r.f_upper == 0 || (r.f_lower < 0) != (r.f_upper < 0));
      EXPECT_LE(r.lower, r.upper);
      EXPECT_TRUE(r.upper - r.lower <= relative * std::abs(r.upper) * 1.01 ||
                  next_up(r.lower) >= r.upper);
    }
  }
}

TEST(FindRoot, SaysWhenItRanOut) {
  const RootBracket r = find_root([](double x) { return x < 0.7 ? -1.0 : 1.0; }, 0, 1, {0, 0, 10});
  EXPECT_FALSE(r.converged);
  EXPECT_EQ(r.evaluations, 10);
  EXPECT_TRUE(r.lower < 0.7 && r.upper >= 0.7);
}

TEST(FindRoot, RefusesWhatItCannotDecide) {
  EXPECT_THROW(find_root([](double x) { return x * x + 1; }, -1, 1), Error);
  EXPECT_THROW(find_root([](double x) { return x; }, -kInf, 1), Error);
  EXPECT_THROW(find_root([](double x) { return x; }, -1, std::nan("")), Error);
  EXPECT_THROW(find_root([](double x) { return std::sqrt(x - 0.5); }, 0, 1), Error);
}

TEST(FindMinimum, FindsTheMinimiser) {
  const Minimum m = find_minimum([](double x) { return (x - 2) * (x - 2) + 5; }, -10, 30);
  EXPECT_TRUE(m.converged);
  EXPECT_NEAR(m.x, 2, 1e-7);
  EXPECT_EQ(m.value, 5);
  EXPECT_TRUE(m.lower <= 2 && 2 <= m.upper);
  EXPECT_LE(m.evaluations, 15);
  EXPECT_NEAR(find_minimum([](double x) { return std::cos(x); }, 0, 6).x, M_PI, 1e-7);
  EXPECT_NEAR(find_minimum([](double x) { return std::abs(x - 0.1); }, 0, 1).x, 0.1, 1e-8);
  EXPECT_NEAR(find_minimum([](double x) { return x; }, 1, 2).x, 1, 1e-6);
}

TEST(FindMinimum, AvoidsNan) {
  const Minimum m = find_minimum([](double x) { return x * std::log(x); }, -0.5, 2);
  EXPECT_NEAR(m.x, std::exp(-1.0), 1e-6);
  EXPECT_EQ(find_minimum([](double) { return std::nan(""); }, 0, 1).value, kInf);
}

TEST(FindMinimum, RefusesBadBrackets) {
  EXPECT_THROW(find_minimum([](double x) { return x; }, 1, 1), Error);
  EXPECT_THROW(find_minimum([](double x) { return x; }, 0, kInf), Error);
}

}  // namespace
}  // namespace discreet::numerics
