#include "discreet/accounting/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "discreet/base/error_testing.h"

namespace discreet::accounting {
namespace {

template <class T>
void expect_kept(const Calibrated<T>& result, const Target& target) {
  EXPECT_LE(result.reached.value.upper, target.epsilon);
  EXPECT_TRUE(result.proven);
  EXPECT_LE(result.evaluations, kMaxEvaluations);
}

TEST(Calibrate, FindsPublishedNoiseMultipliers) {
  struct Row {
    double q;
    std::uint64_t steps;
    Target target;
    double sigma;
  };
  for (const Row& row : {Row{.1, 512, {1, 1e-6}, 9.66175728}, Row{.04, 2250, {8, 1e-5}, 1.34589833},
                         Row{256 / 60000., 14040, {3, 1e-5}, .967979}}) {
    const auto result = calibrate_noise_multiplier(row.q, row.steps, row.target);
    expect_kept(result, row.target);
    EXPECT_GE(result.value, row.sigma * (1 - 1e-6));
    EXPECT_LE(result.value, row.sigma * (1 + 1e-4));
  }
}

TEST(Calibrate, FindsNoiseWhereOnlyTheTransformCertifies) {
  const Target target{.8, 1e-6};
  const auto result = calibrate_noise_multiplier(.05, 3, target);
  expect_kept(result, target);
}

TEST(Calibrate, FindsTheNoiseOfOneFullBatch) {
  // The analytic Gaussian mechanism at epsilon 1, delta .1269367375 has sigma 1.
  const Target target{1, .1269367375};
  const auto result = calibrate_noise_multiplier(1, 1, target);
  expect_kept(result, target);
  EXPECT_NEAR(result.value, 1, 1.1e-4);
}

TEST(Calibrate, FindsTheMostSteps) {
  const Target target{1.82823667, 1e-5};
  const auto result = calibrate_steps(.01, 1, target);
  expect_kept(result, target);
  EXPECT_EQ(result.value, 1000u);
}

TEST(Calibrate, FindsTheLargestRate) {
  const Target target{1.82823667, 1e-5};
  const auto result = calibrate_rate(1, 1000, target);
  expect_kept(result, target);
  EXPECT_LE(result.value, .01 * (1 + 1e-6));
  EXPECT_GE(result.value, .01 * (1 - 1e-4));
  const auto all = calibrate_rate(100, 2, {3, 1e-5});
  EXPECT_EQ(all.value, 1);
}

TEST(Calibrate, FindsTheLeastDelta) {
  const Certified delta = calibrate_delta(.2, .5, 3, 1);
  EXPECT_NEAR(delta.value.upper, .1559328, 2e-4);
  EXPECT_GE(delta.value.upper, .1559328 - 1e-7);
}

TEST(Calibrate, SaysWhatIsAttainableWhenNothingKeepsThePromise) {
  const auto steps = refusal([] { calibrate_steps(.5, .5, {.1, 1e-9}); });
  EXPECT_NE(steps.find("even one step has epsilon"), std::string::npos) << steps;
}

TEST(Calibrate, RefusesBadInput) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(refusal([] {
              calibrate_noise_multiplier(1.5, 10, {1, 1e-5});
            }).find("1.5"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              calibrate_noise_multiplier(.5, 0, {1, 1e-5});
            }).find('0'),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              calibrate_noise_multiplier(.5, 10, {nan, 1e-5});
            }).find("nan"),
            std::string::npos);
  EXPECT_NE(refusal([] { calibrate_steps(.5, -2, {1, 1e-5}); }).find("-2"), std::string::npos);
  EXPECT_NE(refusal([] { calibrate_rate(1, 10, {1, 1}); }).find("delta is 1"), std::string::npos);
  EXPECT_NE(refusal([] {
              calibrate_rate(1, 10, {0, 1e-5});
            }).find("epsilon is 0"),
            std::string::npos);
}

}  // namespace
}  // namespace discreet::accounting
