// Attacks on Apply_v3: each was, or could be, a release that nobody accounted for.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "discreet/accounting/accountant.h"
#include "discreet/base/fork_testing.h"
#include "discreet/config/prevalidation.h"
#include "discreet/mechanism/step/apply_testing.h"

namespace discreet::mechanism {
namespace {

ModelLayout model() { return ModelLayout({{.name = "a.weight", .shape = {2, 2}, .layer = "a"}}); }

Config base() {
  Config config = public_run(400, 4);
  config.privacy.target_steps = 40;
  return config;
}

Mechanism mechanism(const Config& config, const ModelLayout& layout = model()) {
  return mechanism_of(resolved(config), layout);
}

const std::vector<float> kRows = {1, 2, 3, 4, 5, 6, 7, 8};
const Microbatch kBatch = PerSampleGradients<float>{2, {kRows}};

StepResult step(Mechanism& m) { return step(m, kBatch); }

BackwardPass<float> backward_pass() {
  static const std::vector<float> kIn = {1, 2, 3, 4}, kOut = {1, 1, 2, 2};
  return {2, {DensePass<float>{.activations = kIn, .output_gradients = kOut}}};
}

// Sums of backward passes are rounded in binary32: far more than explicit gradients are charged.
TEST(ApplySoundness, TakesBackwardPassesOnlyWhereTheirRoundingIsCharged) {
  for (const ClipStrategy strategy : {ClipStrategy::kPerSample, ClipStrategy::kPerLayer}) {
    Config config = base();
    config.privacy.clip_strategy = strategy;
    Mechanism m = mechanism(config);
    const Bytes before = m.save();
    EXPECT_EQ(code_of([&] { step(m, backward_pass()); }), ErrorCode::kInvalidDpConfig);
    EXPECT_EQ(m.save(), before);
    config.privacy.clip_ghost = true;
    Mechanism ghost = mechanism(config);
    EXPECT_LT(step(ghost, backward_pass()).metrics.effective_noise_multiplier, 1 - 1e-4);
  }
}

TEST(ApplySoundness, CountsThePaddedPositionsOfAConvolution) {
  const ModelLayout layout({{.name = "c.weight", .shape = {1, 1, 1, 1}}});
  Config config = base();
  config.privacy.clip_strategy = ClipStrategy::kGhost;
  Mechanism m = mechanism(config, layout);
  const std::vector<float> in = {1}, out(160801, 0.5f);
  BackwardPass<float> pass{
      1, {ConvolutionPass<float>{.inputs = in, .output_gradients = out, .padding = {200, 200}}}};
  EXPECT_EQ(code_of([&] { step(m, pass); }), ErrorCode::kInvalidGradient);
}

// A grid coarser than 1: what is not rounded to it would be hidden by grid times less noise.
TEST(ApplySoundness, RoundsCompressedRecordsToTheGridOfDiscreteNoise) {
  for (const Compression compression : {Compression::kSparseDp, Compression::kTopkDp}) {
    Config config = base();
    config.privacy.noise_family = NoiseFamily::kRoundedGaussian;
    config.privacy.noise_discrete = 16;
    config.privacy.clip_norm = 1024;
    config.privacy.noise_multiplier = 0;
    config.privacy.debug = true;
    config.privacy.compression = compression;
    config.privacy.compression_keep = 1;
    const std::vector<float> rows = {33, 64, 15, -100};
    Mechanism m = mechanism(config);
    const std::vector<double> got = values(step(m, PerSampleGradients<float>{1, {rows}}));
    EXPECT_EQ(got, (std::vector<double>{32 / 4., 64 / 4., 0, -96 / 4.}));
  }
}

// Whole numbers are summed exactly only below 2^53.
TEST(ApplySoundness, RefusesAGridOnWhichTheLargestBatchIsNotSummedExactly) {
  Config config = base();
  config.privacy.noise_family = NoiseFamily::kRoundedGaussian;
  config.privacy.noise_discrete = 0x1p-40;
  config.privacy.declared_size = 1 << 20;
  config.privacy.effective_batch_size = 1 << 10;
  Mechanism fits = mechanism(config);
  EXPECT_NO_THROW(step(fits));
  config.privacy.effective_batch_size = 1 << 14;
  EXPECT_EQ(code_of([&] { mechanism(config); }), ErrorCode::kInvalidDpConfig);
}

TEST(ApplySoundness, RefusesAGeneratorThatAnyoneCanPredictUnderSecure) {
  Config config = base();
  const DpConfig insecure = resolve(config.privacy).config;
  config.privacy.secure = true;
  config.privacy = resolve(config.privacy).config;
  EXPECT_EQ(code_of([&] {
              Mechanism(config, model(), mechanism_streams(insecure, random::Key::from_seed(1)),
                        Digest{});
            }),
            ErrorCode::kInvalidDpConfig);
}

TEST(ApplySoundness, LeavesTheStateAloneWhenTheFirstMicrobatchIsRefused) {
  Mechanism m = mechanism(base());
  const Bytes before = m.save();
  std::vector<float> rows = kRows;
  rows[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(m.accumulate(PerSampleGradients<float>{2, {rows}}), Error);
  EXPECT_EQ(m.save(), before);
  m.accumulate(kBatch);
  EXPECT_NO_THROW(m.release());
}

// What is taken off delta is for the planned steps.
TEST(ApplySoundness, EndsWhereTheStepsThatDeltaIsChargedForEnd) {
  Config config = base();
  config.privacy.target_steps = 2;
  Mechanism m = mechanism(config);
  step(m);
  step(m);
  const Bytes before = m.save();
  EXPECT_EQ(code_of([&] { step(m); }), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(m.save(), before);
}

// Counts beside exact discrete noise are drawn by the floating-point sampler.
TEST(ApplySoundness, ChargesDeltaForTheNoiseOfCounts) {
  Config config = base();
  config.privacy.noise_family = NoiseFamily::kRoundedGaussian;
  config.privacy.noise_discrete = 0x1p-6;
  config.privacy.target_delta = 1e-36;
  config.privacy.target_epsilon = 3;
  config.privacy.noise_multiplier = 20;
  EXPECT_NO_THROW(mechanism(config));
  config.privacy.metrics_release = MetricsRelease::kDp;
  EXPECT_EQ(code_of([&] { mechanism(config); }), ErrorCode::kInvalidDpConfig);
}

TEST(ApplySoundness, RefusesAValueThatTheComputeTypeCannotHold) {
  Config config = base();
  config.privacy.clip_norm = 1e60;
  config.run.compute_dtype = ComputeDtype::kFloat32;
  Mechanism m = mechanism(config);
  const Bytes before = m.save();
  EXPECT_EQ(code_of([&] { step(m); }), ErrorCode::kInvalidGradient);
  EXPECT_EQ(m.save(), before);
}

// Bounds follow releases; what is composed must not, and what is drawn must not fall below it.
TEST(ApplySoundness, ComposesOneEventWhileBoundsAdaptAndDrawsNoLess) {
  const ModelLayout layout({{.name = "a.weight", .shape = {5}, .layer = "a", .group = "a"},
                            {.name = "b.weight", .shape = {3}, .layer = "b", .group = "b"}});
  std::vector<float> a, b;
  for (int k = 0; k < 40; ++k) a.push_back(static_cast<float>(k % 7) - 3);
  for (int k = 0; k < 24; ++k) b.push_back(0.01f * static_cast<float>(k % 5));
  const Microbatch batch = PerSampleGradients<float>{8, {a, b}};
  for (const ClipStrategy strategy :
       {ClipStrategy::kAdaptive, ClipStrategy::kPerLayer, ClipStrategy::kHybrid})
    for (const AllocationMode mode : {AllocationMode::kUniform, AllocationMode::kLayerWise})
      for (const Compression compression : {Compression::kNone, Compression::kSparseDp}) {
        Config config = base();
        DpConfig& dp = config.privacy;
        dp.clip_strategy = strategy;
        dp.clip_norm_adaptive = true;
        dp.privacy_allocation = mode;
        dp.metrics_release = MetricsRelease::kDp;
        dp.adaptive_noise = 3;
        dp.compression = compression;
        if (compression != Compression::kNone) dp.compression_keep = 0.6;
        Mechanism m = mechanism(config, layout);
        const std::vector<double> first = m.allocation().plan.clip;
        const std::size_t parts = first.size();
        for (int t = 0; t < 8; ++t) {
          // At sigma = 1, without the counts.
          EXPECT_GE(accounting::effective_noise_multiplier(gaussian_groups(m.allocation(), 1)), 1);
          step(m, batch);
        }
        EXPECT_NE(m.allocation().plan.clip, first);
        ASSERT_EQ(m.accountant().composed().size(), 1u);
        const auto groups =
            std::get<accounting::GaussianGroups>(m.accountant().composed()[0].event.mechanism());
        ASSERT_TRUE(groups.adaptation);
        EXPECT_EQ(groups.adaptation->counts, 2 * parts + parts + 1);
        EXPECT_LE(accounting::effective_noise_multiplier(groups),
                  1 / std::sqrt(1 + (3.0 * parts + 1) / 36));
      }
}

Config secure_base() {
  Config config = base();
  config.privacy.secure = true;
  return config;
}

// ---------------------------------------------------------------- at another delta

// What the sampler leaves out is charged at the epsilon that is returned; e^target times as much
// would vanish beside any delta.
TEST(ApplySpent, ChargesTheSamplerAtTheEpsilonThatIsReturned) {
  Config config = secure_base();
  config.privacy.target_epsilon = 2;
  Mechanism m = mechanism(config);
  step(m);
  const double coordinates = static_cast<double>(m.layout().private_parameters());
  // Twice the planned steps count, with 2^-127 for each coordinate, in both worlds.
  const double steps = 2.0 * static_cast<double>(*m.config().privacy.target_steps);
  const auto left_out = [&](double epsilon) {
    return steps * coordinates * 0x1p-127 * (1 + std::exp(epsilon));
  };
  int answers = 0, above_the_target_charge = 0;
  for (int exponent = 3; exponent < 38; ++exponent) {
    const double delta = std::pow(10.0, -exponent);
    if (code_of([&] { m.spent(delta); }) == ErrorCode::kInvalidInput) {
      EXPECT_GT(exponent, 25);
      continue;
    }
    ++answers;
    const double epsilon = m.spent(delta).epsilon.upper;
    EXPECT_GE(epsilon, m.accountant().epsilon(delta - left_out(epsilon)).epsilon.upper) << delta;
    const double at_target = delta - 2 * left_out(2);
    if (at_target > 0 && epsilon > m.accountant().epsilon(at_target).epsilon.upper * (1 + 1e-6))
      ++above_the_target_charge;
  }
  EXPECT_GT(answers, 22);
  EXPECT_GT(above_the_target_charge, 0);
  EXPECT_EQ(m.spent(1e-5).epsilon.upper, m.spent().epsilon.upper);
  EXPECT_SAYS(refusal([&] { m.spent(1e-40); }, ErrorCode::kInvalidInput), "larger delta");
  EXPECT_EQ(code_of([&] { m.spent(0); }), ErrorCode::kInvalidInput);
}

// ---------------------------------------------------------------- steps that are executed again

TEST(ApplyReexecution, DrawsFromAFreshStreamAndChargesWhatWasReleasedAgain) {
  Mechanism first = mechanism(secure_base());
  step(first);
  const Bytes saved = first.save();
  const std::vector<double> released = values(step(first));
  Mechanism again = mechanism(secure_base());
  again.restore(saved, 2);
  EXPECT_EQ(again.t(), 1u);
  EXPECT_EQ(again.accountant().composed().at(0).count, 2u);
  EXPECT_EQ(again.spent().epsilon.upper, first.spent().epsilon.upper);
  const std::vector<double> second = values(step(again));
  for (std::size_t k = 0; k < second.size(); ++k) EXPECT_NE(second[k], released[k]);
  EXPECT_EQ(again.accountant().composed().at(0).count, 3u);
  // A third time is a third stream.
  Mechanism third = mechanism(secure_base());
  third.restore(saved, 2);
  EXPECT_NE(third.lineage(), again.lineage());
  const std::vector<double> other = values(step(third));
  for (std::size_t k = 0; k < other.size(); ++k) EXPECT_NE(other[k], second[k]);
}

// A schedule that looks at what is spent decided the lost epochs before one of them was started
// again.
TEST(ApplyReexecution, ChargesLostEpochsAtTheNoiseTheyHad) {
  for (const ScheduleMode mode :
       {ScheduleMode::kBudgetAdaptive, ScheduleMode::kDynamicProjection}) {
    Config config = secure_base();
    config.privacy.mode = mode;
    config.privacy.accountant_granularity = Granularity::kPerEpoch;
    config.privacy.declared_size = 1000;
    config.privacy.effective_batch_size = 100;
    config.privacy.sampling_rate = 0.1;
    config.privacy.target_steps = 40;
    config.privacy.target_epsilon = 4;
    Mechanism first = mechanism(config);
    Bytes saved;
    for (int t = 0; t < 25; ++t) {
      if (t == 5) saved = first.save();
      step(first);
    }
    Mechanism again = mechanism(config);
    again.restore(saved, 25);
    // The three epochs as they were, and the first once more.
    const auto expected = accounting::make_accountant("pld", {});
    const auto released = first.accountant().composed();
    for (const auto& [event, count] : released) expected->compose(event, count);
    expected->compose(released.front().event, 10);
    EXPECT_NEAR(again.accountant().epsilon(1e-5).epsilon.upper,
                expected->epsilon(1e-5).epsilon.upper, 1e-6);
  }
}

TEST(ApplyReexecution, GoesOnBitForBitWhenNothingIsExecutedTwice) {
  Mechanism whole = mechanism(secure_base()), restored = mechanism(secure_base());
  step(whole);
  restored.restore(whole.save(), 1);
  EXPECT_EQ(restored.save(), whole.save());
  EXPECT_EQ(restored.lineage(), "");
  EXPECT_EQ(values(step(restored)), values(step(whole)));
  // Also on a stream of its own.
  const Bytes saved = whole.save();
  step(whole);
  whole.restore(saved, 3);
  Mechanism next = mechanism(secure_base());
  next.restore(whole.save(), 2);
  EXPECT_EQ(next.lineage(), whole.lineage());
  EXPECT_EQ(values(step(next)), values(step(whole)));
  EXPECT_EQ(next.save(), whole.save());
}

TEST(ApplyReexecution, TwoCopiesOfAStateDrawDifferentNoiseWhenTheyAreFresh) {
  Mechanism first = mechanism(secure_base());
  step(first);
  const Bytes saved = first.save();
  const std::vector<double> released = values(step(first));
  std::vector<std::vector<double>> all = {released};
  for (int copy = 0; copy < 2; ++copy) {
    Mechanism again = mechanism(secure_base());
    again.restore(saved, 1, /*fresh=*/true);
    EXPECT_EQ(again.accountant().composed().at(0).count, 1u);
    EXPECT_NE(again.lineage(), "");
    const std::vector<double> second = values(step(again));
    for (const std::vector<double>& other : all)
      for (std::size_t k = 0; k < second.size(); ++k) EXPECT_NE(second[k], other[k]);
    all.push_back(second);
    Mechanism next = mechanism(secure_base());
    next.restore(again.save(), 2);
    EXPECT_EQ(values(step(next)), values(step(again)));
  }
}

TEST(ApplyReexecution, AForkedProcessReleasesNothing) {
  const Config config = resolved(secure_base());
  const auto make = [&](random::Key key) {
    return Mechanism(config, model(), mechanism_streams(config.privacy, std::move(key)),
                     kernel_replay_token(config, Digest{}));
  };
  Mechanism m = make(random::Key::from_system());
  step(m);
  const Bytes before = m.save();
  EXPECT_EQ(code_in_fork([&] { step(m); }), ErrorCode::kRngConsumptionViolation);
  EXPECT_EQ(code_in_fork([&] { m.restore(before, 1, /*fresh=*/true), step(m); }),
            ErrorCode::kRngConsumptionViolation);
  EXPECT_EQ(code_in_fork([&] {
              Mechanism own = make(random::Key::from_system());
              step(own);
            }),
            std::nullopt);
  EXPECT_EQ(m.save(), before);
  step(m);
}

TEST(ApplyReexecution, MustBeToldHowManyStepsWereReleased) {
  Mechanism m = mechanism(secure_base());
  step(m);
  const Bytes saved = m.save();
  EXPECT_EQ(code_of([&] { m.restore(saved); }), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of([&] { m.restore(saved, 0); }), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of([&] { m.restore(saved, 41); }), ErrorCode::kInvalidInput);
  EXPECT_EQ(m.save(), saved);
}

TEST(ApplyReexecution, KnowsWhatTheSameObjectReleased) {
  Mechanism m = mechanism(secure_base());
  const Bytes saved = m.save();
  step(m);
  // The next step would get the same noise, and the difference of both would have none.
  EXPECT_EQ(code_of([&] { m.restore(saved, 0); }), ErrorCode::kInvalidInput);
  for (int i = 0; i < 5; ++i) {
    m.restore(saved, m.t());
    step(m);
  }
  // Six steps were released: as much is spent as by six steps in a row.
  Mechanism straight = mechanism(secure_base());
  for (int i = 0; i < 6; ++i) step(straight);
  EXPECT_EQ(m.accountant().save(), straight.accountant().save());
}

TEST(ApplyReexecution, ChargesTheScheduleAsItWas) {
  for (const ScheduleMode mode : {ScheduleMode::kFixed, ScheduleMode::kStepDecay,
                                  ScheduleMode::kBudgetAdaptive, ScheduleMode::kMeetExactly}) {
    Config config = secure_base();
    config.privacy.mode = mode;
    if (mode == ScheduleMode::kStepDecay) {
      config.privacy.decay_every = 2;
      config.privacy.decay_factor = 0.9;
    }
    Mechanism first = mechanism(config), again = mechanism(config);
    for (int t = 0; t < 2; ++t) step(first);
    const Bytes saved = first.save();
    for (int t = 0; t < 5; ++t) step(first);
    again.restore(saved, 7);
    EXPECT_EQ(again.accountant().save(), first.accountant().save());
    EXPECT_LE(step(again).budget.after.upper, 8);
  }
}

TEST(ApplyReexecution, BeginsAnEpochAnewWhole) {
  Config config = secure_base();
  config.privacy.sampling_mode = SamplingMode::kBallsAndBins;
  config.privacy.subsampling = Subsampling::kShuffleWithoutReplacement;
  config.privacy.accountant_granularity = Granularity::kPerEpoch;
  config.privacy.declared_size = 40;
  config.privacy.noise_multiplier = 4;
  Mechanism first = mechanism(config);
  for (int t = 0; t < 3; ++t) step(first);
  const Bytes saved = first.save();
  for (const auto& [released, epochs] : {std::pair{3u, 1u}, {5u, 2u}, {10u, 2u}, {11u, 3u}}) {
    Mechanism again = mechanism(config);
    // New batches for the rest of an epoch make it one more epoch, also if no step is lost.
    again.restore(saved, released, /*fresh=*/true);
    EXPECT_EQ(again.accountant().composed().at(0).count, std::max(epochs, 2u)) << released;
    again.restore(saved, released);
    EXPECT_EQ(again.accountant().composed().at(0).count, epochs) << released;
    for (int t = 3; t < 10; ++t) step(again);
    EXPECT_EQ(again.accountant().composed().at(0).count, epochs) << released;
    step(again);
    EXPECT_EQ(again.accountant().composed().at(0).count, epochs + 1) << released;
  }
}

TEST(ApplyReexecution, DropsMicrobatchesOfAnotherSubsample) {
  Config config = secure_base();
  config.privacy.gradient_accumulation_steps = 2;
  Mechanism m = mechanism(config);
  m.accumulate(kBatch);
  const Bytes saved = m.save();
  m.accumulate(kBatch);
  m.release();
  m.restore(saved, 1);
  EXPECT_TRUE(cbor::decode(m.save()).at("accumulation_state").is_null());
  EXPECT_EQ(cbor::decode(m.save()).at("t_micro_counter").as_unsigned(), 0u);
}

}  // namespace
}  // namespace discreet::mechanism
