#include "discreet/mechanism/step/amplification.h"

#include <gtest/gtest.h>

#include <cmath>

#include "discreet/accounting/tradeoff/gdp.h"
#include "discreet/base/error.h"

namespace discreet::mechanism {
namespace {

SamplingPlan plan(SamplingMode mode, Subsampling subsampling, accounting::Adjacency adjacency) {
  DpConfig config;
  config.sampling_mode = mode;
  config.subsampling = subsampling;
  config.adjacency = adjacency;
  config.declared_size = 1000;
  config.effective_batch_size = 10;
  return plan_sampling(config);
}

SamplingPlan shuffled(SamplingMode mode, accounting::Adjacency adjacency) {
  return plan(mode, Subsampling::kShuffleWithoutReplacement, adjacency);
}

TEST(Amplification, OfOneOfAHundredBatchesIsSeveralTimesAndOfAnEpochLess) {
  const double fixed = amplification_factor(
      shuffled(SamplingMode::kFixedSize, accounting::Adjacency::kReplaceOne), 1, 1e-5);
  const double bins = amplification_factor(
      shuffled(SamplingMode::kBallsAndBins, accounting::Adjacency::kAddRemove), 1, 1e-5);
  EXPECT_GT(fixed, 2);
  EXPECT_GT(bins, 2);
}

TEST(Amplification, OfAShuffledEpochIsOneBecauseNoBoundBeatsAPublicPermutation) {
  for (const auto adjacency : {accounting::Adjacency::kZeroOut, accounting::Adjacency::kReplaceOne})
    EXPECT_NEAR(amplification_factor(shuffled(SamplingMode::kShuffledEpoch, adjacency), 2, 1e-6), 1,
                1e-9);
}

TEST(Amplification, IsTheQuotientOfTwoEpsilons) {
  // One Gaussian of multiplier 1 with public participation has the closed form.
  const double open = accounting::gaussian_epsilon(1, 1e-5).upper;
  const double factor = amplification_factor(
      shuffled(SamplingMode::kBallsAndBins, accounting::Adjacency::kAddRemove), 1, 1e-5);
  EXPECT_LT(open / factor, open);
  EXPECT_GT(open / factor, open / 100);  // at most the hundred places of the epoch
}

TEST(Amplification, IsRefusedForSamplersThatDoNotShuffle) {
  EXPECT_THROW(amplification_factor(plan(SamplingMode::kPoisson, Subsampling::kPoisson,
                                         accounting::Adjacency::kAddRemove),
                                    1, 1e-5),
               Error);
}

TEST(InjectionBounds, TheSumIsOneGaussianAndTheShuffledRecordsAreLooser) {
  for (const std::uint64_t slots : {1u, 16u, 400u}) {
    const InjectionBounds bounds = injection_bounds(4, slots, 1e-6);
    EXPECT_NEAR(bounds.of_sum, accounting::gaussian_epsilon(.5, 1e-6).upper, 1e-9);
    ASSERT_TRUE(bounds.shuffled);
    EXPECT_GE(*bounds.shuffled, bounds.of_sum);
    // No more than what a slot's noise gives on its own at a delta a hundred times smaller per
    // slot.
    EXPECT_LE(*bounds.shuffled,
              accounting::gaussian_epsilon(.5 * std::sqrt(1.0 * slots), 1e-8 / slots).upper + 1e-9);
  }
  EXPECT_FALSE(injection_bounds(.1, 1000, 1e-6).shuffled);
}

}  // namespace
}  // namespace discreet::mechanism
