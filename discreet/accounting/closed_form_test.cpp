#include "discreet/accounting/closed_form.h"

#include <gtest/gtest.h>

#include "discreet/accounting/reference_testing.h"

namespace discreet::accounting {
namespace {

Composition single(double q, double sigma, std::uint64_t count = 1) {
  return {{{q, sigma, count}}, {}};
}

TEST(ClosedForm, ContainsOneSubsampledStepInBothDirections) {
  for (const double q : {1e-7, 1e-3, 0.2, 0.5, 0.999, 1.0}) {
    for (const double sigma : {0.3, 1.0, 7.0, 100.0}) {
      for (const double epsilon : {0.0, 1e-4, 0.01, 0.5, 3.0}) {
        for (const Direction direction : {Direction::kRemove, Direction::kAdd}) {
          const auto delta = closed_form_delta(single(q, sigma), direction, epsilon);
          ASSERT_TRUE(delta);
          const long double truth = reference::delta_one(q, sigma, direction, epsilon);
          // The reference itself loses digits to cancellation in the add direction.
          const long double slack = 1e-17L;
          EXPECT_LE(delta->lower, truth + slack) << q << ' ' << sigma << ' ' << epsilon;
          EXPECT_GE(delta->upper, truth - slack) << q << ' ' << sigma << ' ' << epsilon;
          EXPECT_LE(delta->upper - delta->lower, 1e-11 * delta->upper + 1e-18);
        }
      }
    }
  }
}

TEST(ClosedForm, KnowsTheGaussianMechanism) {
  const auto delta = closed_form_delta(single(1, 1), Direction::kRemove, 1);
  EXPECT_NEAR(delta->upper, 0.1269367375, 5e-11);
  const auto many = closed_form_delta(single(1, 4, 16), Direction::kAdd, 1);
  EXPECT_LE(many->lower, delta->upper);
  EXPECT_GE(many->upper, delta->lower);
  EXPECT_LT(many->upper - many->lower, 1e-13);
}

TEST(ClosedForm, InvertsDownToTinyDelta) {
  for (const double delta : {0.3, 1e-5, 1e-15, 1e-30}) {
    for (const Direction direction : {Direction::kRemove, Direction::kAdd}) {
      const auto epsilon = closed_form_epsilon(single(0.01, 0.5), direction, delta);
      ASSERT_TRUE(epsilon);
      EXPECT_LE(epsilon->lower, epsilon->upper);
      EXPECT_LE(epsilon->upper - epsilon->lower, 1e-10 * epsilon->upper) << delta;
      if (epsilon->upper == 0) continue;
      EXPECT_LE(closed_form_delta(single(0.01, 0.5), direction, epsilon->upper)->upper, delta);
      EXPECT_GE(closed_form_delta(single(0.01, 0.5), direction, epsilon->lower)->lower, delta);
    }
  }
}

TEST(ClosedForm, IsZeroWhenDeltaAtZeroSuffices) {
  const auto epsilon = closed_form_epsilon(single(0.01, 5), Direction::kRemove, 0.5);
  EXPECT_EQ(epsilon->lower, 0);
  EXPECT_EQ(epsilon->upper, 0);
}

TEST(ClosedForm, LeavesTheRestToOthers) {
  EXPECT_FALSE(closed_form_delta(single(0.5, 1, 2), Direction::kRemove, 1));
  EXPECT_FALSE(closed_form_delta({{}, {{1, 0, 1}}}, Direction::kRemove, 1));
  EXPECT_FALSE(closed_form_delta({{{0.5, 1, 1}, {1, 1, 1}}, {}}, Direction::kRemove, 1));
}

}  // namespace
}  // namespace discreet::accounting
