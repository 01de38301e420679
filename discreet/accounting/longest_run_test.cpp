#include "discreet/accounting/longest_run.h"

#include <gtest/gtest.h>

#include <cmath>

#include "discreet/base/error_testing.h"

namespace discreet::accounting {
namespace {

const Target kTarget{3, 1e-5};

const LongestRun& row(const LongestRuns& runs, std::string_view sampler) {
  for (const LongestRun& each : runs.planned)
    if (name(each.sampling) == sampler) return each;
  ADD_FAILURE() << sampler << " was not planned";
  return runs.planned.front();
}

// delta(epsilon) of full batches, by its closed form (Balle and Wang 2018).
double gaussian_delta_by_erfc(double mu, double epsilon) {
  const auto cdf = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  return cdf(mu / 2 - epsilon / mu) - std::exp(epsilon) * cdf(-mu / 2 - epsilon / mu);
}

TEST(LongestRun, IsTheLastThatKeepsTheTargetAtItsEvent) {
  for (const Workload& one :
       {workload_from_sizes(60000, 256, 1), workload_from_sizes(490, 10, 1)}) {
    const LongestRuns runs = longest_runs(one, 6, kTarget);
    EXPECT_TRUE(runs.skipped.empty());
    ASSERT_EQ(runs.planned.size(), 5u);
    EXPECT_EQ(name(runs.planned.front().sampling), "poisson");
    for (const LongestRun& each : runs.planned) {
      const auto spent = [&](std::uint64_t steps) {
        PldAccountant accountant(each.adjacency);
        accountant.add(Event(Gaussian{6}, each.sampling, each.adjacency), steps / each.unit);
        return accountant.epsilon(kTarget.delta).value.upper;
      };
      SCOPED_TRACE(name(each.sampling));
      EXPECT_LE(each.epsilon.upper, kTarget.epsilon);
      EXPECT_LE(spent(each.steps), kTarget.epsilon);
      ASSERT_TRUE(each.beyond);
      EXPECT_EQ(each.beyond->steps, each.steps + each.unit);
      EXPECT_GT(each.beyond->epsilon.upper, kTarget.epsilon);
      EXPECT_GT(spent(each.steps + each.unit), kTarget.epsilon);
    }
  }
}

TEST(LongestRun, CountsFullBatchesAndShuffledEpochsAsTheClosedFormDoes) {
  constexpr double kSigma = 20;
  std::uint64_t most = 0;
  while (gaussian_delta_by_erfc(std::sqrt(double(most + 1)) / kSigma, kTarget.epsilon) <=
         kTarget.delta)
    ++most;
  ASSERT_GT(most, 50u);
  const LongestRuns runs = longest_runs(workload_from_sizes(1000, 100, 1), kSigma, kTarget);
  EXPECT_EQ(row(runs, "none").steps, most);
  EXPECT_EQ(row(runs, "shuffled_epoch").steps, most * 10);
}

TEST(LongestRun, OfFixedSizeBatchesIsThatOfPoissonAtHalfTheNoise) {
  const LongestRuns fixed = longest_runs(workload_from_sizes(1024, 16, 1), 2.4, kTarget);
  const LongestRuns half = longest_runs(workload_from_sizes(1024, 16, 1), 1.2, kTarget);
  EXPECT_EQ(row(fixed, "fixed_size").steps, row(half, "poisson").steps);
  const LongestRuns by_rate = longest_runs(workload_from_rate(1 / 64., 1), 2.4, kTarget);
  EXPECT_EQ(row(by_rate, "fixed_size").steps, row(half, "poisson").steps);
  ASSERT_EQ(by_rate.skipped.size(), 2u);
  EXPECT_EQ(by_rate.skipped[0].sampling, "balls_and_bins");
}

TEST(LongestRun, OfAGroupIsShorter) {
  const Workload one = workload_from_sizes(60000, 256, 1);
  const LongestRuns alone = longest_runs(one, 20, kTarget);
  const LongestRuns group = longest_runs(one, 20, {3, 1e-5, 4});
  EXPECT_LT(group.planned.front().steps, alone.planned.front().steps);
  EXPECT_EQ(group.skipped.size(), 1u);
  for (const LongestRun& each : group.planned) {
    EXPECT_LE(each.epsilon.upper, 3);
    ASSERT_TRUE(each.beyond) << name(each.sampling);
    EXPECT_GT(each.beyond->epsilon.upper, 3) << name(each.sampling);
  }
}

TEST(LongestRun, IsKnownWithin1e9OfItselfWhereStepsNoLongerCount) {
  const LongestRuns runs = longest_runs(workload_from_rate(1, 1), 1e6, kTarget);
  const LongestRun& poisson = runs.planned.front();
  ASSERT_TRUE(poisson.beyond);
  EXPECT_GT(poisson.steps, std::uint64_t{1} << 30);
  EXPECT_LE(double(poisson.beyond->steps), double(poisson.steps) * (1 + 1.1e-9));
}

TEST(LongestRun, EndsAtItsLimitAndNamesWhatDoesNotFit) {
  const LongestRuns endless = longest_runs(workload_from_rate(1, 1), 1e9, kTarget);
  EXPECT_EQ(endless.planned.front().steps, std::uint64_t{1} << 50);
  EXPECT_FALSE(endless.planned.front().beyond);
  // A full batch at this noise exceeds the target at once.
  const LongestRuns some = longest_runs(workload_from_sizes(10000, 10, 1), 1, kTarget);
  ASSERT_EQ(some.skipped.size(), 2u);
  EXPECT_NE(some.skipped[1].reason.find("even one step has epsilon"), std::string::npos);
  EXPECT_NE(refusal([] {
              longest_runs(workload_from_rate(.5, 1), .5, {.1, 1e-9});
            }).find("even one step"),
            std::string::npos);
  EXPECT_NE(refusal([] { longest_runs(workload_from_rate(.5, 1), -1, kTarget); }).find("-1"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              longest_runs(workload_from_rate(.5, 1), 1, {0, 1e-5});
            }).find("is 0"),
            std::string::npos);
}

}  // namespace
}  // namespace discreet::accounting
