#include "discreet/mechanism/step/apply.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "discreet/mechanism/step/apply_testing.h"

namespace discreet::mechanism {
namespace {

using namespace small;

TEST(Apply, RefusesToReleaseWhatTheComputeTypeCannotHold) {
  for (const ComputeDtype dtype : {ComputeDtype::kFloat32, ComputeDtype::kBfloat16}) {
    Config config = base();
    config.privacy.clip_norm = 1e40;  // noise of standard deviation 1e39
    config.run.compute_dtype = dtype;
    Mechanism m = mechanism(config);
    const Bytes before = m.save();
    try {
      step(m);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidGradient);
    }
    EXPECT_EQ(m.save(), before);
  }
}

TEST(Apply, ReleasesTheAverageOfClippedGradientsPlusNoiseOfTheStatedDeviation) {
  Config config = base();
  config.privacy.clip_norm = 0.5;
  Mechanism m = mechanism(config);
  const StepResult result = step(m);
  // By hand: clip each record over all private tensors, sum, divide by B_eff = 10, add the noise.
  const Batch batch(10);
  std::vector<double> expected(24);
  for (std::size_t record = 0; record < 10; ++record) {
    long double square = 0;
    std::vector<double> all;
    for (const std::size_t i : {0, 1, 3}) {
      const std::size_t n = batch.values[i].size() / 10;
      for (std::size_t k = 0; k < n; ++k) all.push_back(batch.values[i][record * n + k]);
    }
    for (const double v : all) square += static_cast<long double>(v) * v;
    const double scale = std::min(1.0, 0.5 / (static_cast<double>(std::sqrt(square)) + 1e-8));
    for (std::size_t k = 0; k < all.size(); ++k) expected[k] += all[k] * scale;
  }
  GradientSum noise(model());
  const std::vector<double> stddev = {0.5 / 10};
  NoiseRequest request;
  request.stddev = stddev;
  generate_noise(model(), partition(model(), Cut::kFlat), request,
                 mechanism_streams(resolved(config).privacy, random::Key::from_seed(1)).noise, {},
                 noise);
  for (std::size_t k = 0; k < 24; ++k)
    EXPECT_NEAR(result.gradients.values()[k], expected[k] / 10 + noise.values()[k], 1e-12);
  EXPECT_EQ(result.metrics.clip_fraction, 1);
  EXPECT_EQ(result.metrics.noise_scale_sigma, 1);
}

TEST(Apply, AccountsExactlyWhatItReleasesWithEveryAccountant) {
  for (const AccountantKind kind :
       {AccountantKind::kPld, AccountantKind::kMoments, AccountantKind::kRdp, AccountantKind::kFdp,
        AccountantKind::kGdp}) {
    Config config = base();
    config.privacy.accountant = kind;
    Mechanism m = mechanism(config);
    double last = 0;
    for (int t = 0; t < 5; ++t) {
      const StepResult result = step(m);
      EXPECT_GE(result.budget.after.upper, last);
      EXPECT_EQ(result.budget.before.upper, last);
      last = result.budget.after.upper;
      EXPECT_EQ(result.metrics.cumulative_epsilon, last);
      EXPECT_EQ(result.metrics.privacy_budget_remaining, 8 - last);
    }
    const auto oracle = accounting::make_accountant(m.accountant().name());
    oracle->compose(
        {accounting::Gaussian{1}, accounting::Poisson{0.01}, accounting::Adjacency::kAddRemove}, 5);
    // The rounding of sums and the sampler's tail are charged: a little more, never less.
    const double exact = oracle->epsilon(1e-5).epsilon.upper;
    EXPECT_GE(last, exact);
    EXPECT_LE(last, exact * (1 + 1e-6));
  }
}

TEST(Apply, ComposesASigmaMapAsTheOneGaussianItIs) {
  Config config = base();
  config.privacy.clip_strategy = ClipStrategy::kPerLayer;
  config.privacy.privacy_allocation = AllocationMode::kCustom;
  config.privacy.sigma_map = NumberMap{{"a", 1.0}, {"b", 3.0}};
  Mechanism m = mechanism(config);
  const StepResult result = step(m);
  EXPECT_NEAR(result.metrics.effective_heterogeneous_multiplier, 1, 1e-12);
  EXPECT_NEAR(result.metrics.effective_noise_multiplier, 1, 1e-9);
  const auto oracle = accounting::make_accountant("pld");
  oracle->compose(
      {accounting::Gaussian{1}, accounting::Poisson{0.01}, accounting::Adjacency::kAddRemove}, 1);
  EXPECT_NEAR(result.budget.after.upper, oracle->epsilon(1e-5).epsilon.upper, 1e-5);
}

TEST(Apply, DisabledIsTheAverageAndLeavesTheBudgetAlone) {
  Config config = base();
  config.privacy.enabled = false;
  config.privacy.effective_batch_size = 1;
  Mechanism m = mechanism(config);
  const Batch batch(1, 0, 1e6);
  const Microbatch one = batch.microbatch();
  const StepResult result = m.apply(std::span(&one, 1));
  for (const std::size_t i : {0, 1, 3})
    for (std::size_t k = 0; k < result.gradients.tensor(i).size(); ++k)
      EXPECT_EQ(result.gradients.tensor(i)[k], batch.values[i][k]);
  EXPECT_EQ(result.budget.after.upper, 0);
  EXPECT_EQ(m.spent().epsilon.upper, 0);
}

TEST(Apply, DebugWithoutNoiseReleasesTheClippedAverageAndStampsTheRun) {
  Config config = base();
  config.privacy.debug = true;
  config.privacy.noise_multiplier = 0;
  Mechanism m = mechanism(config);
  EXPECT_FALSE(m.not_private().empty());
  const StepResult result = step(m);
  EXPECT_EQ(result.metrics.noise_scale_sigma, 0);
  EXPECT_NE(cbor::encode(m.trace_header()).size(), 0u);
}

TEST(Apply, ClipsPerMicrobatchAndDrawsNoiseAndAccountsOncePerStep) {
  Config config = base();
  config.privacy.gradient_accumulation_steps = 2;
  Mechanism whole = mechanism(base()), parts = mechanism(config);
  const Batch batch(10);
  const auto slice = [&](std::size_t begin, std::size_t end) {
    PerSampleGradients<float> part{end - begin, {}};
    for (std::size_t i = 0; i < batch.values.size(); ++i) {
      const std::size_t n = batch.values[i].size() / 10;
      part.tensors.push_back(
          std::span<const float>(batch.values[i]).subspan(begin * n, (end - begin) * n));
    }
    return part;
  };
  const Microbatch one = batch.microbatch();
  const StepResult expected = whole.apply(std::span(&one, 1));
  parts.accumulate(slice(0, 4));
  EXPECT_EQ(parts.t(), 0u);
  EXPECT_THROW(parts.release(), Error);
  parts.accumulate(slice(4, 10));
  EXPECT_THROW(parts.accumulate(slice(4, 10)), Error);
  const StepResult result = parts.release();
  EXPECT_EQ(values(result), values(expected));
  EXPECT_EQ(result.budget.after.upper, expected.budget.after.upper);
  EXPECT_EQ(result.metrics.effective_accumulation_factor, 2u);
  const std::vector<Microbatch> both = {slice(0, 4), slice(4, 10)};
  EXPECT_EQ(parts.apply(both).t, 1u);
}

TEST(Apply, StopsBeforeTheStepThatWouldPassTheTargetAndStaysAsItWas) {
  Config config = base();
  config.privacy.noise_multiplier = 0.7;
  config.privacy.target_epsilon = 1.5;
  Mechanism m = mechanism(config);
  bool stopped = false, warned = false;
  for (int t = 0; t < 100 && !stopped; ++t) {
    const Bytes before = m.save();
    try {
      const StepResult result = step(m);
      EXPECT_LE(result.budget.after.upper, 1.5);
      EXPECT_EQ(result.budget.past_warning, result.budget.after.upper > 1.5 * 0.92);
      warned = warned || result.budget.past_warning;
    } catch (const Error& error) {
      stopped = true;
      EXPECT_EQ(error.code(), ErrorCode::kPrivacyBudgetExceeded);
      EXPECT_EQ(m.save(), before);
      const FailureRecord record = m.emit_error(error);
      EXPECT_EQ(record.failure_code, "PRIVACY_BUDGET_EXCEEDED");
      EXPECT_EQ(record.failure_operator, "Accountant.Update_v1");
      EXPECT_EQ(record.t, m.t());
      EXPECT_EQ(record.state_fp, sha256(before));
      EXPECT_EQ(record.dp_replay, m.replay());
    }
  }
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(warned);
}

TEST(Apply, ReservesAWholeEpochBeforeItsFirstStep) {
  Config config = base();
  config.privacy.sampling_mode = SamplingMode::kBallsAndBins;
  config.privacy.subsampling = Subsampling::kShuffleWithoutReplacement;
  config.privacy.accountant_granularity = Granularity::kPerEpoch;
  config.privacy.declared_size = 100;
  config.privacy.noise_multiplier = 2;
  config.privacy.target_steps = 20;
  Mechanism m = mechanism(config);
  const double first = step(m).budget.after.upper;
  for (int t = 1; t < 10; ++t) EXPECT_EQ(step(m).budget.after.upper, first);
  EXPECT_GT(step(m).budget.after.upper, first);
  ASSERT_EQ(m.accountant().composed().size(), 1u);
  EXPECT_EQ(m.accountant().composed()[0].count, 2u);
}

TEST(Apply, PerEpochOfPoissonStepsComposesThemAllAtOnce) {
  Config config = base();
  config.privacy.accountant_granularity = Granularity::kPerEpoch;
  Mechanism m = mechanism(config);
  const double reserved = step(m).budget.after.upper;
  EXPECT_EQ(m.accountant().composed()[0].count, 100u);
  EXPECT_EQ(step(m).budget.after.upper, reserved);
}

TEST(Apply, ZeroesOrRefusesGradientsThatAreNotFinite) {
  for (const NonfinitePolicy policy : {NonfinitePolicy::kAbort, NonfinitePolicy::kZero}) {
    Config config = base();
    config.privacy.nonfinite = policy;
    Mechanism m = mechanism(config);
    Batch batch(10);
    batch.values[0][5] = std::nanf("");
    const Microbatch one = batch.microbatch();
    const Bytes before = m.save();
    if (policy == NonfinitePolicy::kAbort) {
      try {
        m.apply(std::span(&one, 1));
        FAIL();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidGradient);
        EXPECT_EQ(m.save(), before);
      }
      EXPECT_THROW(m.accumulate(one), Error);
    } else {
      const StepResult result = m.apply(std::span(&one, 1));
      EXPECT_EQ(result.metrics.zeroed_records, 1u);
      for (const double v : values(result)) EXPECT_TRUE(std::isfinite(v));
    }
  }
}

TEST(Apply, RefusesABatchBeyondWhatWasDeclared) {
  Mechanism m = mechanism(base());
  const Bytes before = m.save();
  const std::size_t too_many = m.most_records() + 1;
  EXPECT_THROW(step(m, too_many), Error);
  EXPECT_EQ(m.save(), before);
  EXPECT_NO_THROW(step(m, 0));  // an empty batch releases noise
}

TEST(Apply, RefusesBackwardPassesUnlessTheirRoundingIsAccounted) {
  const std::vector<float> input(30, 0.5f), gradient(40, 0.25f), in(40, 1.0f), out(20, 1.0f);
  BackwardPass<float> pass{10, {}};
  pass.layers.emplace_back(DensePass<float>{input, gradient, 1, 0, 1});
  pass.layers.emplace_back(DensePass<float>{in, out, 1, 3, {}});
  const Microbatch one = pass;
  Config config = base();
  config.privacy.clip_strategy = ClipStrategy::kPerLayer;
  Mechanism rows = mechanism(config);
  const Bytes before = rows.save();
  EXPECT_THROW(rows.apply(std::span(&one, 1)), Error);
  EXPECT_EQ(rows.save(), before);
  const double unaccounted = step(rows).metrics.effective_noise_multiplier;
  config.privacy.fused_kernel = true;
  Mechanism fused = mechanism(config);
  EXPECT_LT(fused.apply(std::span(&one, 1)).metrics.effective_noise_multiplier, unaccounted);
}

TEST(Apply, CastsToTheComputeTypeAtTheEnd) {
  for (const ComputeDtype dtype : {ComputeDtype::kFloat32, ComputeDtype::kBfloat16}) {
    Config config = base();
    Mechanism exact = mechanism(config);
    config.run.compute_dtype = dtype;
    Mechanism narrow = mechanism(config);
    const std::vector<double> a = values(step(exact)), b = values(step(narrow));
    for (std::size_t k = 0; k < a.size(); ++k) {
      EXPECT_EQ(b[k], static_cast<double>(static_cast<float>(b[k])));
      EXPECT_NEAR(b[k], a[k], std::fabs(a[k]) * (dtype == ComputeDtype::kFloat32 ? 6e-8 : 4e-3));
    }
  }
}

TEST(Apply, GivesTheSameBitsForAnyNumberOfThreads) {
  Mechanism one = mechanism(base(), 1), four = mechanism(base(), 4);
  for (int t = 0; t < 3; ++t) EXPECT_EQ(values(step(one)), values(step(four)));
}

TEST(Apply, MeetsTheTargetExactlyAtItsLastStep) {
  Config config = base();
  config.privacy.mode = ScheduleMode::kMeetExactly;
  config.privacy.target_epsilon = 1;
  config.privacy.target_steps = 50;
  Mechanism m = mechanism(config);
  double last = 0;
  for (int t = 0; t < 50; ++t) {
    const Bytes before = m.save();
    const double sigma = m.noise_multiplier();
    EXPECT_EQ(m.save(), before);
    const StepResult result = step(m);
    EXPECT_EQ(result.metrics.noise_scale_sigma, sigma);
    last = result.budget.after.upper;
  }
  EXPECT_LE(last, 1);
  EXPECT_GE(last, 1 - 1e-4);
  EXPECT_THROW(step(m), Error);
}

TEST(Apply, RaisesTheNoiseOrAbortsWhenTheProjectionIsAboveTheTarget) {
  Config config = base();
  config.privacy.noise_multiplier = 0.6;
  config.privacy.target_epsilon = 2;
  config.privacy.projection_policy = ProjectionPolicy::kUpscale;
  Mechanism up = mechanism(config);
  const StepResult result = step(up);
  EXPECT_GT(result.metrics.noise_scale_sigma, 0.6);
  EXPECT_LE(*result.metrics.projected_final_epsilon, 2);
  ASSERT_EQ(result.warnings.size(), 1u);
  for (int t = 1; t < 100; ++t) step(up);
  config.privacy.projection_policy = ProjectionPolicy::kAbort;
  Mechanism abort = mechanism(config);
  const Bytes before = abort.save();
  EXPECT_THROW(step(abort), Error);
  EXPECT_EQ(abort.save(), before);
  config.privacy.projection_policy = ProjectionPolicy::kAdvise;
  Mechanism advise = mechanism(config);
  EXPECT_GT(*step(advise).metrics.projected_final_epsilon, 2);
}

TEST(Apply, AdaptsItsClipBoundPrivatelyAndAccountsForIt) {
  Config config = base();
  config.privacy.clip_strategy = ClipStrategy::kAdaptive;
  config.privacy.effective_batch_size = 100;
  config.privacy.adaptive_noise = 4;
  Mechanism m = mechanism(config);
  const double before = m.allocation().plan.clip[0];
  StepResult result = step(m, 100);
  // sigma_eff^-2 = 1 + 2 / (4 * 16)
  EXPECT_NEAR(result.metrics.effective_noise_multiplier, 1 / std::sqrt(1 + 2.0 / 64), 1e-6);
  for (int t = 0; t < 60; ++t) result = step(m, 100);
  EXPECT_NE(m.allocation().plan.clip[0], before);
  EXPECT_GT(m.allocation().plan.clip[0], 3);  // norms are about sqrt(24)
  EXPECT_EQ(m.accountant().composed().size(), 1u);
}

TEST(Apply, ReleasesNoisedClipFractionsInsideTheBudget) {
  Config config = base();
  config.privacy.metrics_release = MetricsRelease::kDp;
  config.privacy.adaptive_noise = 4;
  Mechanism m = mechanism(config);
  const StepResult result = step(m);
  ASSERT_TRUE(result.released);
  EXPECT_EQ(result.released->group_clip_fraction.size(), 1u);
  EXPECT_NE(result.released->clip_fraction, result.metrics.clip_fraction);
  EXPECT_NEAR(result.metrics.effective_noise_multiplier, 1 / std::sqrt(1 + 2.0 / 64), 1e-6);
}

TEST(Apply, DrawsDiscreteFamiliesOnTheGridWithTheirOwnEvents) {
  for (const NoiseFamily family :
       {NoiseFamily::kRoundedGaussian, NoiseFamily::kDiscreteGaussian, NoiseFamily::kSkellam}) {
    Config config = base();
    config.privacy.noise_family = family;
    config.privacy.noise_discrete = 0x1p-6;
    config.privacy.effective_batch_size = 8;  // a power of two: the average stays on a grid
    config.privacy.declared_size = 800;
    if (family != NoiseFamily::kRoundedGaussian) config.privacy.accountant = AccountantKind::kRdp;
    Mechanism m = mechanism(config);
    const StepResult result = step(m, 8);
    for (const double v : values(result)) EXPECT_EQ(v * 64 * 8, std::round(v * 64 * 8));
    const auto event = m.accountant().composed().at(0).event;
    EXPECT_EQ(accounting::name(event.mechanism()),
              family == NoiseFamily::kRoundedGaussian    ? "rounded_gaussian"
              : family == NoiseFamily::kDiscreteGaussian ? "discrete_gaussian"
                                                         : "skellam");
    EXPECT_GT(result.budget.after.upper, 0);
  }
}

TEST(Apply, CompressesByPublicRandomnessOrEarlierReleases) {
  for (const Compression compression : {Compression::kSparseDp, Compression::kTopkDp}) {
    Config config = base();
    config.privacy.compression = compression;
    config.privacy.compression_keep = 0.25;
    Mechanism m = mechanism(config);
    std::vector<double> first = values(step(m)), second = values(step(m));
    const auto kept = [](const std::vector<double>& v) {
      return std::count_if(v.begin(), v.end(), [](double x) { return x != 0; });
    };
    EXPECT_EQ(kept(second), 3 + 1 + 2);
    EXPECT_EQ(kept(first), compression == Compression::kSparseDp ? 6 : 24);
    EXPECT_NEAR(m.allocation().plan.clip[0], 0.5, 1e-15);
  }
}

TEST(Apply, TouchesNeitherPublicModulesNorFrozenTensors) {
  Config config = base();
  config.privacy.public_modules = {"b"};
  Mechanism m = mechanism(config);
  const StepResult result = step(m);
  EXPECT_TRUE(result.gradients.tensor(2).empty());
  EXPECT_TRUE(result.gradients.tensor(3).empty());
  EXPECT_EQ(result.gradients.values().size(), 16u);
  EXPECT_NEAR(result.metrics.peft_noise_reduction_factor, std::sqrt(29.0 / 16), 1e-12);
}

TEST(Apply, TracksEveryFieldOfTheTrace) {
  Mechanism m = mechanism(base());
  for (const char* key :
       {"dp_mode", "accountant", "clipping_strategy", "subsampling", "sampling_mode",
        "sampler_config_hash", "parallelism.type", "noise_seed_per_step", "privacy_allocation_mode",
        "fused_kernel", "safety_budget_reserve"})
    EXPECT_NE(m.trace_header().find(key), nullptr) << key;
  const StepResult result = step(m);
  const cbor::Value line = trace_iter(result);
  for (const char* key : {"t",
                          "clip_fraction",
                          "group_clip_fraction",
                          "noise_scale_sigma",
                          "effective_noise_multiplier",
                          "effective_heterogeneous_multiplier",
                          "effective_accumulation_factor",
                          "cumulative_epsilon_before",
                          "cumulative_epsilon_after",
                          "projected_final_epsilon",
                          "norm_p50",
                          "norm_p95",
                          "norm_max",
                          "gradient_snr",
                          "fairness_clip_ratio",
                          "scaling_law_confidence",
                          "peft_noise_reduction_factor",
                          "accountant_type_used",
                          "pld_epsilon_tight",
                          "dp_replay_t"})
    EXPECT_NE(line.find(key), nullptr) << key;
  for (const char* key : {"final_epsilon", "budget_status", "accountant_summary_hash"})
    EXPECT_NE(m.trace_end().find(key), nullptr) << key;
  EXPECT_EQ(m.trace_end().at("budget_status").as_text(), "within_budget");
}

TEST(Apply, ReplayTokenIsTheSpecifiedHash) {
  const Config config = resolved(base());
  Mechanism m = mechanism(base());
  const StepResult result = step(m);
  const Digest token = kernel_replay_token(config, Digest{});
  const Digest accountant = sha256(m.accountant().save());
  const Digest expected =
      sha256(cbor::encode(cbor::array({"dp_apply_v3", ByteView(token), std::uint64_t{1},
                                       ByteView(accountant), "uniform", false, 0.08})));
  EXPECT_EQ(result.replay, expected);
  Mechanism again = mechanism(base());
  EXPECT_EQ(step(again).replay, expected);
}

TEST(Apply, RefusedMicrobatchLeavesNoTraceInTheState) {
  Config config = base();
  config.privacy.gradient_accumulation_steps = 2;
  Mechanism m = mechanism(config);
  Batch bad(3);
  bad.values[0][5] = std::numeric_limits<float>::quiet_NaN();
  for (int done = 0; done < 2; ++done) {
    const Bytes before = m.save();
    EXPECT_THROW(m.accumulate(bad.microbatch()), Error);
    EXPECT_EQ(m.save(), before);
    const Batch good(3);
    m.accumulate(good.microbatch());
  }
  m.release();
  EXPECT_EQ(m.t(), 1u);
}

}  // namespace
}  // namespace discreet::mechanism
