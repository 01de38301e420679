#include "discreet/accounting/plan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "discreet/accounting/sampling/balls_and_bins.h"
#include "discreet/accounting/sampling/shuffle.h"
#include "discreet/base/error_testing.h"

namespace discreet::accounting {
namespace {

const Target kTarget{3, 1e-5};

const PlannedSampler& row(const SamplerPlan& plan, std::string_view sampler) {
  for (const PlannedSampler& each : plan.planned) {
    if (name(each.sampling) == sampler) return each;
  }
  ADD_FAILURE() << sampler << " was not planned";
  return plan.planned.front();
}

TEST(Plan, CountsStepsFromSizes) {
  const Workload workload = workload_from_sizes(60000, 256, 60);
  EXPECT_EQ(workload.sizes->batches, 235u);
  EXPECT_EQ(workload.steps, 14100u);
  EXPECT_EQ(workload.rate, 256 / 60000.);
  EXPECT_EQ(workload_from_sizes(100, 100, 3).steps, 3u);
  EXPECT_EQ(workload_from_sizes(100, 50, 3).steps, 6u);
}

TEST(Plan, KeepsThePromiseWithEverySampler) {
  const SamplerPlan plan = plan_samplers(workload_from_sizes(10000, 200, 20), kTarget);
  EXPECT_TRUE(plan.skipped.empty());
  ASSERT_EQ(plan.planned.size(), 5u);
  EXPECT_EQ(name(plan.planned.front().sampling), "poisson");
  for (const PlannedSampler& each : plan.planned) {
    EXPECT_LE(each.epsilon.upper, kTarget.epsilon) << name(each.sampling);
    EXPECT_GE(each.unamplified.upper, each.epsilon.upper) << name(each.sampling);
  }
}

TEST(Plan, GivesTheNoiseThatOtherFunctionsConfirm) {
  const Workload workload = workload_from_sizes(10000, 200, 20);
  const SamplerPlan plan = plan_samplers(workload, kTarget);
  const double poisson = row(plan, "poisson").noise_multiplier;
  EXPECT_EQ(poisson, calibrate_noise_multiplier(.02, 1000, kTarget).value);
  EXPECT_NEAR(row(plan, "fixed_size").noise_multiplier, 2 * poisson, 1e-4 * poisson);

  const double bins = row(plan, "balls_and_bins").noise_multiplier;
  const AllocationEpochs enough{bins, 50, 20}, less{bins * .995, 50, 20};
  EXPECT_LE(allocation_epsilon({&enough, 1}, 1e-5, 1e-4).upper, 3);
  EXPECT_GT(allocation_epsilon({&less, 1}, 1e-5, 1e-4).lower, 3) << "less noise would do";

  const double shuffled = row(plan, "shuffled_epoch").noise_multiplier;
  EXPECT_EQ(row(plan, "shuffled_epoch").adjacency, Adjacency::kZeroOut);
  EXPECT_GT(shuffle_zero_out_epsilon({shuffled * .999, 50, 20}, 1e-5).upper, 3);
  const double none = row(plan, "none").noise_multiplier;
  EXPECT_NEAR(none / shuffled, std::sqrt(50), 1e-3 * none) << "both are Gaussians composed";
  EXPECT_EQ(row(plan, "none").noise_to_batch, none / 10000);
}

// B/N is not a binary64 number: the accountant of the run rounds the rate up, and a plan that is
// used up exactly must still fit.
TEST(Plan, IsKeptByTheAccountantOfTheRun) {
  for (const std::uint64_t records : {490u, 510u, 530u, 570u, 10000u}) {
    const Workload workload = workload_from_sizes(records, 10, 5);
    const SamplerPlan plan = plan_samplers(workload, kTarget);
    const PlannedSampler& fixed = row(plan, "fixed_size");
    const Event event(Gaussian{fixed.noise_multiplier}, fixed.sampling, fixed.adjacency);
    const Interval run = certified_epsilon(reduce({{event, workload.steps}}), kTarget.delta).value;
    EXPECT_LE(run.upper, kTarget.epsilon) << records;
    EXPECT_EQ(run.upper, fixed.epsilon.upper) << records;
  }
}

TEST(Plan, NamesWhatDoesNotFit) {
  const SamplerPlan by_rate = plan_samplers(workload_from_rate(.01, 1000), kTarget);
  ASSERT_EQ(by_rate.skipped.size(), 2u);
  EXPECT_EQ(by_rate.skipped[0].sampling, "balls_and_bins");
  EXPECT_EQ(by_rate.skipped[1].sampling, "shuffled_epoch");
  const SamplerPlan full = plan_samplers(workload_from_sizes(100, 100, 3), kTarget);
  ASSERT_EQ(full.skipped.size(), 1u);
  EXPECT_EQ(full.skipped[0].sampling, "fixed_size");
}

TEST(Plan, ShowsThatShufflingAtPoissonNoiseBreaksThePromise) {
  const Workload workload = workload_from_sizes(60000, 256, 60);
  const Interval shuffled = shuffled_at(workload, .969161, 1e-5);
  EXPECT_GT(shuffled.lower, 2 * kTarget.epsilon);
  EXPECT_GT(shuffled.upper, shuffled.lower);
}

TEST(Plan, SpendsMoreTheLongerARunIs) {
  const Workload workload = workload_from_rate(.01, 1000);
  const auto spent = epsilon_over_run(workload, 1, {3, 1e-5}, {1, 10, 100, 1000});
  for (std::size_t i = 1; i < spent.size(); ++i) {
    EXPECT_GT(spent[i].epsilon.lower, spent[i - 1].epsilon.upper);
  }
  EXPECT_NEAR(spent.back().epsilon.upper, 1.828236666515, 1e-6);
}

TEST(Plan, PricesAdaptiveClippingByTheWholeEvent) {
  const Workload workload = workload_from_rate(.01, 1000);
  const double sigma = calibrate_noise_multiplier(.01, 1000, kTarget).value;
  const AdaptiveClipping price = price_of_adaptive_clipping(workload, sigma, kTarget);
  EXPECT_LE(price.epsilon.upper, kTarget.epsilon);
  EXPECT_GT(price.epsilon_if_unchanged.lower, kTarget.epsilon);
  EXPECT_NEAR(price.noise_multiplier / sigma, 1 / std::sqrt(.98), 1e-6);
  const double deviation = price.count_deviation, rise = price.noise_multiplier;
  EXPECT_GE(1 / std::sqrt(1 / (rise * rise) + 2 / (4 * deviation * deviation)),
            sigma * (1 - 1e-14));
}

TEST(Plan, FindsTheBatchThatHalvesTheNoise) {
  const Workload workload = workload_from_sizes(60000, 256, 60);
  const double sigma = calibrate_noise_multiplier(workload.rate, workload.steps, kTarget).value;
  const auto larger = batch_that_halves_noise(workload, sigma, kTarget);
  ASSERT_TRUE(larger);
  EXPECT_EQ(larger->workload.sizes->epochs, 60u);
  EXPECT_LE(larger->epsilon.upper, kTarget.epsilon);
  EXPECT_LE(larger->noise_to_batch, sigma / 256 / 2);
  const auto batch = static_cast<std::uint64_t>(double(larger->workload.sizes->batch) * .97);
  const Workload smaller = workload_from_sizes(60000, batch, 60);
  const double less = calibrate_noise_multiplier(smaller.rate, smaller.steps, kTarget).value;
  EXPECT_GT(less / double(batch), sigma / 256 / 2) << "a smaller batch would do";
}

TEST(Plan, SaysWhenNoBatchHalvesTheNoise) {
  const Workload workload = workload_from_sizes(100, 60, 1000);
  const double sigma = calibrate_noise_multiplier(workload.rate, workload.steps, kTarget).value;
  EXPECT_FALSE(batch_that_halves_noise(workload, sigma, kTarget));
}

TEST(Plan, RefusesBadInput) {
  EXPECT_NE(refusal([] { workload_from_rate(1.5, 10); }).find("1.5"), std::string::npos);
  EXPECT_NE(refusal([] { workload_from_rate(.5, 0); }).find("is 0"), std::string::npos);
  EXPECT_NE(refusal([] { workload_from_sizes(100, 101, 1); }).find("101"), std::string::npos);
  EXPECT_NE(refusal([] { workload_from_sizes(100, 0, 1); }).find("is 0"), std::string::npos);
  EXPECT_NE(refusal([] { workload_from_sizes(100, 10, 0); }).find("epochs"), std::string::npos);
  EXPECT_NE(refusal([] { workload_from_sizes(std::uint64_t{1} << 53, 1, 2); }).find("2^53"),
            std::string::npos);
}

}  // namespace
}  // namespace discreet::accounting
