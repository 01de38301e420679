#include "discreet/config/prevalidation.h"

#include <cmath>
#include <limits>

#include "discreet/accounting/accountant.h"
#include "discreet/config/config_table.h"
#include "discreet/config/config_testing.h"

namespace discreet {
namespace {

using accounting::Adjacency;

// A configuration built in code, as a C++ user does.
DpConfig sound() {
  DpConfig config;
  config.target_epsilon = 3;
  config.declared_size = 60000;
  config.effective_batch_size = 600;
  return config;
}
template <class Change>
std::string refused(const Change& change, std::uint64_t t = 0) {
  DpConfig config = sound();
  change(config);
  return refusal([&] { prevalidate(config, t); });
}

TEST(Prevalidation, AcceptsASoundConfigurationBuiltInCode) {
  EXPECT_NO_THROW(prevalidate(sound(), 0));
  EXPECT_NO_THROW(prevalidate(sound(), 1'000'000));
}

TEST(Prevalidation, HoldsTheConstraintsOfTheSpecification) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_SAYS(refused([](DpConfig& c) { c.target_epsilon = -1; }), "target_epsilon is -1");
  EXPECT_NO_THROW(load("target_epsilon: 0"));
  for (const double bad : {0.0, 1.0, -0.1, 2.0, nan}) {
    EXPECT_SAYS(refused([&](DpConfig& c) { c.target_delta = bad; }), "target_delta is ");
  }
  for (const double bad : {-0.1, 1.0, nan}) {
    EXPECT_SAYS(refused([&](DpConfig& c) { c.safety_budget_reserve = bad; }),
                "safety_budget_reserve is ");
  }
  for (const double bad : {-1.0, nan, inf, 1e9, 1e-9, 0.0}) {
    EXPECT_SAYS(refused([&](DpConfig& c) { c.noise_multiplier = bad; }), "noise_multiplier is ");
  }
  for (const double bad : {-1.0, nan, inf, 0.0}) {
    EXPECT_SAYS(refused([&](DpConfig& c) { c.clip_norm = bad; }), "clipping.");
    EXPECT_SAYS(refused([&](DpConfig& c) {
                  c.clip_norm = bad;
                  c.clip_norm_adaptive = true;
                }),
                "clipping.adaptive.initial is ");
    EXPECT_SAYS(refused([&](DpConfig& c) {
                  c.sensitivity_map = NumberMap{{"a", bad}};
                }),
                "sensitivity_map of a is ");
    EXPECT_SAYS(refused([&](DpConfig& c) { c.modules["a"].clip_norm = bad; }),
                "modules of a: clip_norm is ");
  }
  EXPECT_SAYS(refused([](DpConfig& c) { c.accounting_adjustment_factor = 0.99; }),
              "accounting_adjustment_factor is 0.99; it must be in [1, inf)");
  EXPECT_SAYS(refused([](DpConfig& c) { c.gradient_accumulation_steps = 0; }),
              "gradient_accumulation_steps is 0");
}

TEST(Prevalidation, RefusesNumbersThatAreNoEnumerator) {
  EXPECT_SAYS(refused([](DpConfig& c) { c.clip_strategy = static_cast<ClipStrategy>(99); }),
              "clipping.strategy is '?'");
  EXPECT_SAYS(refused([](DpConfig& c) { c.mode = static_cast<ScheduleMode>(99); }), "mode is '?'");
  EXPECT_SAYS(refused([](DpConfig& c) { c.accountant = static_cast<AccountantKind>(99); }),
              "accountant is '?'");
}

TEST(Prevalidation, NoiseZeroNeedsDebugAndStampsTheRun) {
  EXPECT_SAYS(refusal_of("noise_multiplier: 0"), "f:6: ");
  EXPECT_SAYS(refusal_of("phases: {warmup: {steps: 3, noise_multiplier: 0}}"),
              "phases.warmup.noise_multiplier is 0, which protects nobody");
  EXPECT_EQ(not_private_reasons(privacy_of("noise_multiplier: 0\ndebug: true")).size(), 1u);
  EXPECT_SAYS(refusal_of("noise_multiplier: 0\ndebug: true\nregulated: true"),
              "debug is true, which regulated forbids");
}

TEST(Prevalidation, StatesWhyARunIsNotPrivate) {
  EXPECT_TRUE(not_private_reasons(privacy_of("")).empty());
  EXPECT_SAYS(not_private_reasons(privacy_of("secure: false")).at(0), "public seed");
  EXPECT_SAYS(not_private_reasons(privacy_of("enabled: false")).at(0), "enabled is false");
  const DpConfig heuristic = privacy_of(
      "privacy: {adaptive_accounting: heuristic}\nallow_nonprivate_adaptation: true\nclipping: "
      "{norm: adaptive}");
  EXPECT_SAYS(not_private_reasons(heuristic).at(0), "not paid for");
}

// Step 1b: every pair of sampling mode and subsampling.
TEST(Prevalidation, SamplerAndSubsamplingMustAgree) {
  for (const std::string_view mode : spellings(SamplingMode{})) {
    for (const std::string_view subsampling : spellings(Subsampling{})) {
      const bool shuffle = mode.starts_with("SHUFFLE_WITHOUT_REPLACEMENT");
      const std::string_view needed = shuffle                   ? "SHUFFLE_WITHOUT_REPLACEMENT"
                                      : mode == "SEQUENTIAL_V1" ? "NONE"
                                                                : "POISSON";
      const std::string keys = "sampling_mode: " + std::string(mode) +
                               "\nsubsampling: " + std::string(subsampling) +
                               (mode == "TRUNCATED_POISSON_V1" ? "\ntruncated_batch: 700" : "");
      if (subsampling == needed) {
        EXPECT_NO_THROW(load(keys)) << keys;
      } else {
        EXPECT_SAYS(refusal_of(keys), "f:7: security.differential_privacy.subsampling is ");
        EXPECT_SAYS(refusal_of(keys), "needs " + std::string(needed));
      }
    }
  }
  EXPECT_SAYS(refusal_of("sampling_mode: ROUND_ROBIN_V1"), "sampling_mode is 'ROUND_ROBIN_V1'");
}

// II.G: which accountant takes which sampler under which adjacency. The oracle is written down from
// the theorems: no Rényi bound is known for balls and bins or truncated batches, f_dp composes only
// what reduces to Poisson or full batches, and each sampler has its neighbours.
TEST(Prevalidation, AccountantTakesTheSamplerUnderTheAdjacencyOrRefuses) {
  for (const std::string_view mode : spellings(SamplingMode{})) {
    for (const std::string_view accountant : spellings(AccountantKind{})) {
      for (const std::string_view adjacency : spellings(Adjacency{})) {
        const bool poisson = mode == "POISSON_V1";
        const bool truncated = mode == "TRUNCATED_POISSON_V1";
        const bool fixed = mode.ends_with("FIXED_SIZE_V1");
        const bool bins = mode.ends_with("BALLS_AND_BINS_V1");
        const bool epoch = mode.ends_with("EPOCH_V1");
        const bool replace = adjacency == "replace_one";
        bool sound = true;
        if (poisson || truncated || bins) sound = !replace;
        // A record that is zeroed still fills its place in a batch of bounded size.
        if (fixed) sound = adjacency != "zero_out";
        if (truncated) sound = adjacency == "add_remove";
        if (epoch) sound = adjacency != "add_remove";
        // 600 of 60000 records at a time: removing one moves the others.
        if (mode == "SEQUENTIAL_V1") sound = adjacency != "add_remove";
        if (bins || truncated) sound = sound && accountant == "pld";
        if (accountant == "f_dp") sound = sound && !epoch && !(fixed && replace);
        const std::string keys =
            "sampling_mode: " + std::string(mode) + "\naccountant: " + std::string(accountant) +
            "\nadjacency: " + std::string(adjacency) + (truncated ? "\ntruncated_batch: 700" : "");
        if (sound) {
          EXPECT_NO_THROW(load(keys)) << keys;
        } else {
          EXPECT_SAYS(refusal_of(keys), "security.differential_privacy.") << keys;
        }
      }
    }
  }
}

TEST(Prevalidation, GdpBelowRateOneIsServedByItsCertifiedBound) {
  const DpConfig c = privacy_of(
      "accountant: gdp\nsampling_rate: 0.001\nnoise_multiplier: 0.6\n"
      "target_steps: 10000\neffective_batch_size: null");
  const auto accountant = accounting::make_accountant(spelling(c.accountant));
  accountant->compose(step_event(c, c.noise_multiplier), 10000);
  const auto bound = accountant->epsilon(1e-5);
  EXPECT_GE(bound.epsilon.upper, 2.456);  // the truth; the central limit says 1.505
  EXPECT_LT(bound.approximation->not_a_bound(), 1.51);
}

TEST(Prevalidation, NoiseThatChangesNeedsAnAccountantThatComposesIt) {
  const std::string shuffled = "sampling_mode: SHUFFLE_WITHOUT_REPLACEMENT_EPOCH_V1\n";
  EXPECT_NO_THROW(load(shuffled));
  EXPECT_SAYS(refusal_of(shuffled + "phases: {warmup: {steps: 100, noise_multiplier: 2}}"),
              "two different settings in one run");
  EXPECT_SAYS(refusal_of(shuffled + "mode: step_decay"), "two different settings in one run");
  EXPECT_NO_THROW(
      load(shuffled + "accountant: rdp\nphases: {warmup: {steps: 100, noise_multiplier: 2}}"));
}

TEST(Prevalidation, SamplersNeedTheirSizes) {
  const std::string no_size = "declared_size: null\n";
  EXPECT_SAYS(refusal_of(no_size), "sampling_rate is missing");
  EXPECT_SAYS(refusal_of(no_size + "subsampling: SHUFFLE_WITHOUT_REPLACEMENT"),
              "declared_size is missing");
  EXPECT_SAYS(refusal_of("sampling_mode: TRUNCATED_POISSON_V1"), "truncated_batch is missing");
  EXPECT_SAYS(refusal_of("truncated_batch: 9"), "only TRUNCATED_POISSON_V1 truncates");
  EXPECT_SAYS(refusal_of(no_size + "effective_batch_size: null\nsampling_rate: 0.1"),
              "effective_batch_size is missing");
}

TEST(Prevalidation, EpochsAreWholeAndTheirNoiseConstant) {
  const std::string bins = "sampling_mode: SHUFFLE_WITHOUT_REPLACEMENT_BALLS_AND_BINS_V1\n";
  EXPECT_NO_THROW(load(bins + "target_steps: 300\nphases: {warmup: {steps: 100}}"));
  EXPECT_SAYS(refusal_of(bins + "accountant_granularity: PER_STEP"), "PER_EPOCH");
  EXPECT_SAYS(refusal_of(bins + "target_steps: 150"), "must be a multiple of 100");
  EXPECT_SAYS(refusal_of(bins + "phases: {warmup: {steps: 50}}"), "phases.warmup.until_step is 50");
  EXPECT_SAYS(refusal_of(bins + "mode: step_decay\ndecay: {every: 50}"), "decay.every is 50");
  EXPECT_NO_THROW(load("accountant_granularity: PER_EPOCH"));
}

TEST(Prevalidation, RegulatedGhostClippingNeedsItsAuditedBound) {
  const std::string ghost = "regulated: true\nclipping: {strategy: ghost}\n";
  EXPECT_SAYS(refusal_of(ghost), "ghost_bound_hash is missing");
  EXPECT_SAYS(refusal_of("regulated: true\nextends: peft_max_utility"),
              "ghost_bound_hash is missing");
  const std::string hash = "ghost_bound_hash: " + std::string(64, 'a') + "\n";
  EXPECT_NO_THROW(load(ghost + hash));
  EXPECT_SAYS(refusal_of(ghost + hash + "accounting_adjustment_factor: 0.5"),
              "accounting_adjustment_factor is 0.5");
  EXPECT_SAYS(refusal_of(ghost + "ghost_bound_hash: abc"), "64 lower-case hexadecimal digits");
  EXPECT_NO_THROW(load("clipping: {strategy: ghost}"));
}

TEST(Prevalidation, RegulatedRefusesWhatHasNoGuarantee) {
  EXPECT_SAYS(refusal_of("regulated: true\nsecure: false"), "secure is false");
  EXPECT_SAYS(refusal_of("regulated: true\nallow_nonprivate_adaptation: true"), "which regulated");
  EXPECT_SAYS(refusal_of("regulated: true\nprivacy: {adaptive_accounting: heuristic}\n"
                         "allow_nonprivate_adaptation: true"),
              "adaptive_accounting is heuristic, which regulated forbids");
}

TEST(Prevalidation, HeuristicAdaptationNeedsConsent) {
  EXPECT_SAYS(refusal_of("privacy: {adaptive_accounting: heuristic}"),
              "allow_nonprivate_adaptation: true");
}

TEST(Prevalidation, RefusesImpossibleCombinations) {
  EXPECT_SAYS(refusal_of("mode: meet_exactly_at_target_steps"), "set target_steps");
  EXPECT_SAYS(refusal_of("mode: budget_adaptive"), "set target_steps");
  EXPECT_SAYS(refusal_of("mode: dynamic_projection"), "set target_steps");
  EXPECT_SAYS(refusal_of("noise: {family: laplace}\nclipping: {strategy: ghost}"), "L1");
  EXPECT_SAYS(refusal_of("noise: {family: laplace}"), "accountant is pld");
  EXPECT_NO_THROW(load("noise: {family: laplace}\naccountant: rdp"));
  EXPECT_SAYS(refusal_of("noise: {family: skellam}\naccountant: rdp"), "set noise.discrete");
  EXPECT_SAYS(refusal_of("noise: {discrete: 0.1}"), "has no grid");
  EXPECT_SAYS(refusal_of("noise: {family: skellam, discrete: 0.1}\naccountant: rdp"),
              "a power of two, such as 0.125");
  EXPECT_SAYS(refusal_of("noise: {family: skellam, discrete: 0.125}"), "accountant is pld");
  EXPECT_NO_THROW(load("noise: {family: skellam, discrete: 0.125}\naccountant: rdp"));
  EXPECT_SAYS(refusal_of("noise: {family: rounded_gaussian, discrete: 0.125}\nclipping: {strategy: "
                         "ghost}"),
              "no gradient per record");
  EXPECT_SAYS(refusal_of("noise: {family: rounded_gaussian, discrete: 0.125}\nclipping: {norm: "
                         "adaptive}"),
              "clipping.norm is adaptive");
  EXPECT_SAYS(refusal_of("noise: {compression_keep: 0.5}"), "set a compression");
  EXPECT_SAYS(refusal_of("clip_norm_map: {a: 1}"), "has one bound");
  EXPECT_SAYS(refusal_of("sigma_map: {a: 1}"), "use custom");
  EXPECT_SAYS(refusal_of("privacy_allocation: custom"), "set sigma_map");
  EXPECT_SAYS(refusal_of("clipping: {adaptive: {initial: 2}}"),
              "only with clipping.norm: adaptive");
  EXPECT_SAYS(refusal_of("clipping: {norm: adaptive, adaptive: {lower: 5}}"), "between the bounds");
  EXPECT_SAYS(refusal_of("clipping: {norm: adaptive, adaptive: {lower: 5, upper: 2}}"), "at most");
  EXPECT_SAYS(refusal_of("clipping: {norm: adaptive}\nphases: {warmup: {steps: 1, clip_norm: 1}}"),
              "follows the norms");
  EXPECT_SAYS(refusal_of("noise_seed_per_step: true\ntarget_steps: 16777217"), "2^24");
  EXPECT_SAYS(refusal_of("target_steps: 9\nmode: meet_exactly_at_target_steps\n"
                         "phases: {main: {noise_multiplier: 2}}"),
              "determines the noise itself");
}

TEST(Prevalidation, ChecksTheStepToBeTaken) {
  EXPECT_SAYS(refused([](DpConfig& c) { c.noise_seed_per_step = true; }, 1 << 24), "2^24");
  EXPECT_SAYS(refused(
                  [](DpConfig& c) {
                    c.mode = ScheduleMode::kMeetExactly;
                    c.target_steps = 10;
                  },
                  10),
              "the planned run is complete");
}

TEST(Prevalidation, ChecksTheAccumulationContext) {
  const std::string four = "gradient_accumulation_steps: 4\naccumulation_context: ";
  EXPECT_NO_THROW(load(four + "{current_step: 0, is_final: false}"));
  EXPECT_NO_THROW(load(four + "{current_step: 3, is_final: true}"));
  EXPECT_SAYS(refusal_of(four + "{current_step: 4, is_final: true}"), "it must be at most 3");
  EXPECT_SAYS(refusal_of(four + "{current_step: 2, is_final: true}"), "exactly for the last");
  EXPECT_SAYS(refusal_of(four + "{current_step: 3, is_final: false}"), "exactly for the last");
}

TEST(Prevalidation, DisabledNeedsNoBudgetAndIsCheckedForRangesOnly) {
  EXPECT_NO_THROW(load_config(
      "security: {differential_privacy: {enabled: false, mode: budget_adaptive}}", "f"));
  EXPECT_SAYS(refusal_of("enabled: false\ntarget_delta: 2"), "target_delta is 2");
}

}  // namespace
}  // namespace discreet
