// Clauses of the specification about the whole procedure that no single operator shows.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "discreet/config/prevalidation.h"
#include "discreet/mechanism/step/apply_testing.h"
#include "discreet/numerics/sum.h"

namespace discreet::mechanism {
namespace {

ModelLayout model() {
  return ModelLayout({{.name = "a.weight", .shape = {3}}, {.name = "b.weight", .shape = {2}}});
}

Config base() { return public_run(400, 4); }

Mechanism mechanism(const Config& config, std::uint64_t key = 1) {
  return mechanism_of(resolved(config), model(), 1, key);
}

const std::vector<float> kA = {1, 2, 3, 4, 5, 6}, kB = {1, 1, 2, 2};
const Microbatch kBatch = PerSampleGradients<float>{2, {kA, kB}};

StepResult step(Mechanism& m) { return step(m, kBatch); }

TEST(ApplyClauses, NamesItsAlgorithmAndVersion) {
  const Mechanism m = mechanism(base());
  EXPECT_EQ(m.trace_header().at("specification").as_text(),
            "UML_OS.DifferentialPrivacy.Apply_v3 2026-02-18");
}

TEST(ApplyClauses, BeginsAtStepZeroWithNothingSpentOnAStreamOfItsOwn) {
  const Mechanism m = mechanism(base());
  EXPECT_EQ(m.t(), 0u);
  EXPECT_EQ(m.spent().epsilon.upper, 0);
  EXPECT_EQ(cbor::decode(m.save()).at("rng_dp_state").as_unsigned(), 0u);
  // Noise and masks come from different keys: no draw of one is a draw of the other.
  const DpConfig dp = resolve(base().privacy).config;
  const MechanismStreams streams = mechanism_streams(dp, random::Key::from_seed(1));
  std::uint64_t noise = 0, masks = 0;
  random::BlockSource(streams.noise).read(0, 0, std::span(&noise, 1));
  random::BlockSource(streams.masks).read(0, 0, std::span(&masks, 1));
  EXPECT_NE(noise, masks);
}

TEST(ApplyClauses, SecureNoiseDependsOnTheKeyAndInsecureNoiseOnTheSeedAlone) {
  Config config = base();
  Mechanism one = mechanism(config, 1), other = mechanism(config, 2);
  EXPECT_EQ(values(step(one)), values(step(other)));
  config.privacy.secure = true;
  Mechanism secret = mechanism(config, 1), another = mechanism(config, 2);
  EXPECT_NE(values(step(secret)), values(step(another)));
}

TEST(ApplyClauses, InvalidConfigurationEndsBeforeAnythingElse) {
  Config config = base();
  config.privacy.target_delta = 2;
  const DpConfig dp = config.privacy;
  try {
    const Mechanism m(config, model(), mechanism_streams(dp, random::Key::from_seed(1)), Digest{});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
    EXPECT_EQ(error.op(), "PreValidation_v1");
  }
}

// What fails first when several things would: configuration, gradients, budget, noise.
TEST(ApplyClauses, RunsItsStepsInTheWrittenOrder) {
  Config config = base();
  config.privacy.target_epsilon = 1e-6;  // the budget fails too
  Mechanism m = mechanism(config);
  const std::vector<float> bad = {1, std::nanf(""), 3, 4, 5, 6};
  const Microbatch nan = PerSampleGradients<float>{2, {bad, kB}};
  const Bytes before = m.save();
  try {
    m.apply(std::span(&nan, 1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidGradient);
  }
  try {
    step(m);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPrivacyBudgetExceeded);
  }
  EXPECT_EQ(m.save(), before);  // no noise was consumed either
}

TEST(ApplyClauses, PldDeclaresItsErrorBoundInTheTrace) {
  Mechanism m = mechanism(base());
  step(m);
  const cbor::Value end = m.trace_end();
  const cbor::Value& epsilon = end.at("final_epsilon");
  EXPECT_EQ(end.at("epsilon_error_bound").as_float(),
            epsilon.at("upper").as_float() - epsilon.at("lower").as_float());
  EXPECT_EQ(end.at("rdp_sum_rule_epsilon_note").as_text(), "not a bound");
  EXPECT_TRUE(std::isfinite(end.at("rdp_sum_rule_epsilon").as_float()));
}

TEST(ApplyClauses, ADeclaredApproximationIsInTheTrace) {
  Config config = base();
  config.privacy.accounting_approximation_policy = "poisson stands for our shuffled batches";
  const Mechanism m = mechanism(config);
  EXPECT_EQ(m.trace_header().at("accounting_approximation_policy").as_text(),
            "poisson stands for our shuffled batches");
}

TEST(ApplyClauses, StepDecayMultipliesSigmaByItsFactorEverySoManySteps) {
  Config config = base();
  config.privacy.mode = ScheduleMode::kStepDecay;
  config.privacy.noise_multiplier = 4;
  config.privacy.decay_factor = 0.5;
  config.privacy.decay_every = 3;
  config.privacy.target_steps = 9;
  Mechanism m = mechanism(config);
  std::vector<double> sigmas(9);
  for (double& sigma : sigmas) sigma = step(m).metrics.noise_scale_sigma;
  EXPECT_EQ(sigmas, (std::vector<double>{4, 4, 4, 2, 2, 2, 1, 1, 1}));
  EXPECT_EQ(m.accountant().composed().size(), 3u);
}

TEST(ApplyClauses, PhasesChangeSigmaAndTheBoundAtTheirSteps) {
  Config config = base();
  config.privacy.target_steps = 6;
  config.privacy.warmup = {
      .until_step = 2, .steps = {}, .noise_multiplier = 3.0, .clip_norm = 0.25};
  config.privacy.main = {.until_step = 4, .steps = {}, .noise_multiplier = {}, .clip_norm = {}};
  config.privacy.cooldown = {
      .until_step = {}, .steps = {}, .noise_multiplier = 2.0, .clip_norm = {}};
  Mechanism m = mechanism(config);
  std::vector<double> sigmas, bounds;
  for (int t = 0; t < 6; ++t) {
    bounds.push_back(m.allocation().plan.clip[0]);
    sigmas.push_back(step(m).metrics.noise_scale_sigma);
  }
  EXPECT_EQ(sigmas, (std::vector<double>{3, 3, 1, 1, 2, 2}));
  EXPECT_EQ(bounds, (std::vector<double>{0.25, 0.25, 1, 1, 1, 1}));
}

TEST(ApplyClauses, SignalToNoiseIsTheNormOfTheAverageOverThatOfTheNoise) {
  Config config = base();
  config.privacy.clip_norm = 100;  // clips nothing
  config.privacy.noise_multiplier = 2;
  Mechanism m = mechanism(config);
  const double snr = step(m).metrics.gradient_snr;
  const std::vector<double> average = {5.0 / 4, 7.0 / 4, 9.0 / 4, 3.0 / 4, 3.0 / 4};
  const double stddev = 2 * 100.0 / 4;
  EXPECT_NEAR(snr, numerics::norm_l2(average) / (stddev * std::sqrt(5.0)), 1e-12);
}

TEST(ApplyClauses, FusedClippingServesBoundsWithinALayerOnly) {
  ClipPlan layers{partition(model(), Cut::kLayer), {1, 1}, std::nullopt};
  EXPECT_TRUE(is_fusible(model(), layers));
  layers.flat_clip = 1;
  EXPECT_FALSE(is_fusible(model(), layers));
  EXPECT_FALSE(is_fusible(model(), {partition(model(), Cut::kFlat), {1}, std::nullopt}));
}

TEST(ApplyClauses, ConsumesRandomNumbersInProportionToTheCoordinates) {
  for (const std::uint64_t n : {2u, 20u, 2000u, 2000000u})
    EXPECT_EQ(noise_indices(ModelLayout({{.name = "w", .shape = {n}}}), NoiseFamily::kGaussian, 0),
              n / 2);
}

}  // namespace
}  // namespace discreet::mechanism
