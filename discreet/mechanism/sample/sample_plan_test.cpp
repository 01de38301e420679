#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "discreet/accounting/accountant.h"
#include "discreet/base/error.h"
#include "discreet/config/config_resolve.h"
#include "discreet/config/config_table.h"
#include "discreet/config/prevalidation.h"
#include "discreet/mechanism/sample/sample.h"

namespace discreet::mechanism {
namespace {

using accounting::Adjacency;

constexpr std::array kModes = {SamplingMode::kPoisson,       SamplingMode::kTruncatedPoisson,
                               SamplingMode::kFixedSize,     SamplingMode::kBallsAndBins,
                               SamplingMode::kShuffledEpoch, SamplingMode::kSequential};

// A configuration of that mode that is accepted: 600 of 60000.
DpConfig config_of(SamplingMode mode) {
  DpConfig config;
  config.sampling_mode = mode;
  const bool coins = mode == SamplingMode::kPoisson || mode == SamplingMode::kTruncatedPoisson;
  const bool sequential = mode == SamplingMode::kSequential;
  config.subsampling = coins        ? Subsampling::kPoisson
                       : sequential ? Subsampling::kNone
                                    : Subsampling::kShuffleWithoutReplacement;
  if (sequential || mode == SamplingMode::kShuffledEpoch) config.adjacency = Adjacency::kZeroOut;
  config.declared_size = 60000;
  config.effective_batch_size = 600;
  if (mode == SamplingMode::kTruncatedPoisson) config.truncated_batch = 700;
  return config;
}

std::string refusal(const DpConfig& config) {
  try {
    plan_sampling(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
    return error.sentence();
  }
  return "accepted";
}

TEST(SamplingPlan, HandsOverTheEventOfItsOwnSampler) {
  const auto sampling = [](SamplingMode mode) { return plan_sampling(config_of(mode)).sampling(); };
  EXPECT_EQ(sampling(SamplingMode::kPoisson), accounting::Sampling(accounting::Poisson{0.01}));
  EXPECT_EQ(sampling(SamplingMode::kTruncatedPoisson),
            accounting::Sampling(accounting::TruncatedPoisson{0.01, 700, 60000}));
  EXPECT_EQ(sampling(SamplingMode::kFixedSize),
            accounting::Sampling(accounting::FixedSize{600, 60000}));
  EXPECT_EQ(sampling(SamplingMode::kBallsAndBins),
            accounting::Sampling(accounting::BallsAndBins{100}));
  EXPECT_EQ(sampling(SamplingMode::kShuffledEpoch),
            accounting::Sampling(accounting::ShuffledEpoch{100}));
  EXPECT_EQ(sampling(SamplingMode::kSequential), accounting::Sampling(accounting::NoSampling{}));
}

TEST(SamplingPlan, AgreesWithWhatTheConfigurationPlans) {
  for (const SamplingMode mode : kModes)
    for (const auto& [size, rate, batch] :
         std::vector<std::tuple<std::optional<std::uint64_t>, std::optional<double>,
                                std::optional<std::uint64_t>>>{{60000, {}, 600},
                                                               {60001, 0.01, {}},
                                                               {{}, 0.03, 64},
                                                               {25, 0.1, {}},
                                                               {1000, {}, 1000}}) {
      DpConfig config = config_of(mode);
      config.declared_size = size;
      config.sampling_rate = rate;
      config.effective_batch_size = batch;
      if (mode == SamplingMode::kTruncatedPoisson) config.truncated_batch = 20;
      const DpConfig resolved = resolve(config).config;
      const SamplingPlan plan = plan_sampling(resolved);
      EXPECT_EQ(plan.sampling(), sampling_of(resolved)) << spelling(mode);
      EXPECT_EQ(plan.steps_per_epoch, batches_per_epoch(resolved)) << spelling(mode);
      EXPECT_EQ(plan.steps_per_event(), is_epoch_event(mode) ? batches_per_epoch(resolved) : 1u);
      EXPECT_EQ(plan, plan_sampling(config)) << "resolving first changes nothing";
    }
}

TEST(SamplingPlan, EveryEventIsOneThatAnAccountantBounds) {
  for (const SamplingMode mode : kModes) {
    const SamplingPlan plan = plan_sampling(config_of(mode));
    const accounting::Event event(accounting::Gaussian{2}, plan.sampling(), plan.adjacency);
    const auto accountant = accounting::make_accountant("pld");
    accountant->compose(event, 10);
    const double upper = accountant->epsilon(1e-5).epsilon.upper;
    EXPECT_GT(upper, 0) << spelling(mode);
    EXPECT_LT(upper, 20) << spelling(mode);
  }
}

TEST(SamplingPlan, AnEventCoversAnEpochOnlyWhereTheEpochIsAtomic) {
  for (const SamplingMode mode : kModes) {
    const SamplingPlan plan = plan_sampling(config_of(mode));
    const bool atomic = mode == SamplingMode::kBallsAndBins || mode == SamplingMode::kShuffledEpoch;
    EXPECT_EQ(plan.steps_per_event(), atomic ? 100u : 1u) << spelling(mode);
    EXPECT_EQ(plan.steps_per_epoch, 100u) << spelling(mode);
  }
}

TEST(SamplingPlan, StepOneBAcceptsExactlyTheSubsamplingOfTheMode) {
  for (const SamplingMode mode : kModes) {
    int accepted = 0;
    for (const Subsampling subsampling :
         {Subsampling::kPoisson, Subsampling::kShuffleWithoutReplacement, Subsampling::kNone}) {
      try {
        check_sampling(mode, subsampling);
        ++accepted;
        EXPECT_EQ(subsampling, config_of(mode).subsampling);
        // 1b.1: the name decides
        EXPECT_EQ(spelling(mode).starts_with("SHUFFLE_WITHOUT_REPLACEMENT"),
                  subsampling == Subsampling::kShuffleWithoutReplacement);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
        EXPECT_NE(error.sentence().find(spelling(mode)), std::string::npos);
      }
    }
    EXPECT_EQ(accepted, 1) << spelling(mode);
  }
  try {
    check_sampling(SamplingMode::kSequential, Subsampling::kPoisson);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.sentence(),
              "sampling_mode SEQUENTIAL_V1 does not match subsampling POISSON, so the accountant "
              "would assume another sampler; set subsampling: NONE, or use another sampling_mode");
  }
}

TEST(SamplingPlan, AnyTwoOfRateBatchAndSizeAreTheSamePlanAndTheSameHash) {
  DpConfig batch_size = config_of(SamplingMode::kPoisson);
  DpConfig rate_size = batch_size, rate_batch = batch_size, all = batch_size;
  rate_size.effective_batch_size.reset();
  rate_batch.declared_size.reset();
  rate_size.sampling_rate = rate_batch.sampling_rate = all.sampling_rate = 0.01;
  const SamplingPlan plan = plan_sampling(batch_size);
  for (const DpConfig& same : {rate_size, rate_batch, all}) {
    EXPECT_EQ(plan_sampling(same), plan);
    EXPECT_EQ(plan_sampling(same).hash(), plan.hash());
  }
  all.sampling_rate = 0.0101;  // 606 of 60000
  EXPECT_EQ(refusal(all),
            "sampling_rate 0.0101 times declared_size 60000 is not effective_batch_size 600; set "
            "two of the three");
}

TEST(SamplingPlan, HashTellsEveryDifferentSamplerApart) {
  std::set<Digest> hashes;
  std::size_t plans = 0;
  const auto add = [&](const DpConfig& config) {
    hashes.insert(plan_sampling(config).hash());
    ++plans;
  };
  for (const SamplingMode mode : kModes) {
    DpConfig config = config_of(mode);
    add(config);
    config.effective_batch_size = 500;
    add(config);
    config.declared_size = 50000;
    add(config);
  }
  DpConfig config = config_of(SamplingMode::kTruncatedPoisson);
  config.truncated_batch = 701;
  add(config);
  config = config_of(SamplingMode::kPoisson);
  config.adjacency = Adjacency::kZeroOut;
  add(config);
  EXPECT_EQ(hashes.size(), plans);
}

TEST(SamplingPlan, WithoutADeclaredSizeTheAdjacencyMustBeZeroOut) {
  DpConfig config = config_of(SamplingMode::kPoisson);
  config.declared_size.reset();
  config.effective_batch_size.reset();
  config.sampling_rate = 0.01;
  EXPECT_EQ(refusal(config),
            "the number of records is not declared, so adjacency add_remove does not hold; set "
            "declared_size, or adjacency: zero_out");
  config.adjacency = Adjacency::kZeroOut;
  EXPECT_EQ(plan_sampling(config).steps_per_epoch, 100u);
  config.sampling_rate = 0.03;
  EXPECT_EQ(plan_sampling(config).steps_per_epoch, 34u);
}

TEST(SamplingPlan, RefusesAnAdjacencyUnderWhichTheSamplerHasNoGuarantee) {
  const auto with = [](SamplingMode mode, Adjacency adjacency) {
    DpConfig config = config_of(mode);
    config.adjacency = adjacency;
    return refusal(config);
  };
  EXPECT_EQ(with(SamplingMode::kPoisson, Adjacency::kReplaceOne),
            "poisson sampling has no guarantee under replace_one");
  EXPECT_EQ(with(SamplingMode::kBallsAndBins, Adjacency::kReplaceOne),
            "balls_and_bins sampling has no guarantee under replace_one");
  EXPECT_EQ(with(SamplingMode::kShuffledEpoch, Adjacency::kAddRemove),
            "shuffled_epoch sampling has no guarantee under add_remove");
  EXPECT_EQ(with(SamplingMode::kFixedSize, Adjacency::kZeroOut),
            "fixed_size sampling has no guarantee under zero_out");
  EXPECT_EQ(with(SamplingMode::kTruncatedPoisson, Adjacency::kZeroOut),
            "truncated_poisson sampling has no guarantee under zero_out");
  EXPECT_EQ(with(SamplingMode::kFixedSize, Adjacency::kReplaceOne), "accepted");
  EXPECT_NE(with(SamplingMode::kSequential, Adjacency::kAddRemove), "accepted");
  DpConfig full = config_of(SamplingMode::kSequential);
  full.adjacency = Adjacency::kAddRemove;
  full.effective_batch_size = full.declared_size;
  EXPECT_EQ(refusal(full), "accepted");
}

TEST(SamplingPlan, RefusesMissingAndImpossibleNumbersAndNamesThem) {
  DpConfig config = config_of(SamplingMode::kTruncatedPoisson);
  config.truncated_batch.reset();
  EXPECT_EQ(refusal(config),
            "sampling_mode TRUNCATED_POISSON_V1 needs truncated_batch, the maximum number of "
            "records of a batch");
  config.truncated_batch = 60001;
  EXPECT_EQ(refusal(config), "truncated_batch 60001 exceeds declared_size 60000");
  config = config_of(SamplingMode::kPoisson);
  config.truncated_batch = 700;
  EXPECT_NE(refusal(config), "accepted");
  config = config_of(SamplingMode::kFixedSize);
  config.declared_size.reset();
  EXPECT_NE(refusal(config), "accepted");
  config.declared_size = 599;
  EXPECT_EQ(refusal(config), "effective_batch_size 600 exceeds declared_size 599");
  config = config_of(SamplingMode::kPoisson);
  config.effective_batch_size.reset();
  EXPECT_EQ(refusal(config),
            "sampling_mode POISSON_V1 needs sampling_rate, or declared_size and "
            "effective_batch_size");
  for (const double bad : {0.0, -0.1, 1.5, std::nan(""), HUGE_VAL}) {
    config.sampling_rate = bad;
    EXPECT_NE(refusal(config), "accepted") << bad;
  }
  config = config_of(SamplingMode::kPoisson);
  config.effective_batch_size = 0;
  EXPECT_EQ(refusal(config), "effective_batch_size is 0; it must be in [1, 2^51]");
  config.effective_batch_size = 1;
  config.declared_size = std::uint64_t{1} << 40;
  EXPECT_EQ(refusal(config), "an epoch must have 1 to 2^24 steps; use a larger rate or batch");
  config.declared_size.reset();
  config.sampling_rate = 1e-300;
  EXPECT_NE(refusal(config), "accepted");
}

}  // namespace
}  // namespace discreet::mechanism
