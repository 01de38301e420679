#include "discreet/accounting/group_privacy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "discreet/accounting/pld.h"
#include "discreet/base/error.h"

namespace discreet::accounting {
namespace {

TEST(GroupPrivacy, OfOneRecordIsThatOfTheAccountant) {
  const GroupEpsilon one = group_epsilon({.01, 1, 1000}, 1, 1e-5);
  EXPECT_LE(one.epsilon.lower, 1.828236666515);
  EXPECT_GE(one.epsilon.upper, 1.828236666515);
}

TEST(GroupPrivacy, OfFullBatchesIsOneGaussianOfGTimesTheSensitivity) {
  const GroupEpsilon group = group_epsilon({1, 12, 4}, 3, 1e-5);
  const Composition joint{{{1, 2, 1}}, {}};  // 12 / sqrt(4) / 3
  EXPECT_EQ(group.bound, GroupBound::kJoint);
  EXPECT_NEAR(group.epsilon.upper, certified_epsilon(joint, 1e-5).value.upper, 1e-6);
}

TEST(GroupPrivacy, ConvertsAsABruteSearchOfTheCurveDoes) {
  const GaussianSteps steps{256 / 60000., .969161, 14100};
  const GroupEpsilon group = group_epsilon(steps, 4, 1e-5);
  ASSERT_EQ(group.bound, GroupBound::kConversion);
  double least = HUGE_VAL;
  for (double epsilon = 3; epsilon < 8 && least == HUGE_VAL; epsilon += .01) {
    const double delta = certified_delta({{steps}, {}}, epsilon).value.upper;
    if (delta * std::expm1(4 * epsilon) / std::expm1(epsilon) <= 1e-5) least = 4 * epsilon;
  }
  EXPECT_LE(group.epsilon.upper, least * (1 + 1e-4));
  EXPECT_GE(group.epsilon.upper, least - 4 * .01 * 1.01);
}

// delta of one step against a group of three, all gradients alike: a mixture over how many of them
// take part, by the trapezoidal rule. No bound may be below the truth.
TEST(GroupPrivacy, IsAboveTheTruthOfOneStep) {
  const double q = .2, sigma = 2;
  const auto normal = [&](double x, double mean) {
    return std::exp(-(x - mean) * (x - mean) / (2 * sigma * sigma)) /
           (sigma * std::sqrt(2 * std::numbers::pi));
  };
  const auto with = [&](double x) {
    const double p = 1 - q;
    return p * p * p * normal(x, 0) + 3 * p * p * q * normal(x, 1) + 3 * p * q * q * normal(x, 2) +
           q * q * q * normal(x, 3);
  };
  for (const double delta : {1e-2, 1e-4, 1e-6}) {
    const double epsilon = group_epsilon({q, sigma, 1}, 3, delta).epsilon.upper;
    double truth_remove = 0, truth_add = 0;
    const double step = 1e-3;
    for (double x = -30; x < 40; x += step) {
      truth_remove += step * std::max(0., with(x) - std::exp(epsilon) * normal(x, 0));
      truth_add += step * std::max(0., normal(x, 0) - std::exp(epsilon) * with(x));
    }
    EXPECT_LE(truth_remove, delta);
    EXPECT_LE(truth_add, delta);
    // And a fifth of it would be too little: the test can fail.
    double truth = 0;
    for (double x = -30; x < 40; x += step) {
      truth += step * std::max(0., with(x) - std::exp(epsilon / 5) * normal(x, 0));
    }
    EXPECT_GT(truth, delta);
  }
}

TEST(GroupPrivacy, GrowsWithTheGroup) {
  double before = 0;
  for (const std::uint64_t size : {1u, 2u, 3u, 5u, 8u}) {
    const Interval epsilon = group_epsilon({.01, 2, 1000}, size, 1e-5).epsilon;
    EXPECT_GT(epsilon.upper, before);
    before = epsilon.upper;
  }
}

TEST(GroupPrivacy, OfAHugeGroupIsStillAnswered) {
  const Interval epsilon = group_epsilon({.01, 1, 1000}, 1'000'000, 1e-5).epsilon;
  EXPECT_GT(epsilon.upper, 1e6);
}

TEST(GroupPrivacy, RefusesBadInput) {
  EXPECT_THROW(group_epsilon({.01, 1, 1000}, 0, 1e-5), Error);
  EXPECT_THROW(group_epsilon({2, 1, 1000}, 2, 1e-5), Error);
  EXPECT_THROW(group_epsilon({.01, -1, 1000}, 2, 1e-5), Error);
  EXPECT_THROW(group_epsilon({.01, 1, 1000}, 2, 0), Error);
}

}  // namespace
}  // namespace discreet::accounting
