#include "discreet/mechanism/step/forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>

#include "discreet/mechanism/step/apply_testing.h"

namespace discreet::mechanism {
namespace {

// The oracle is the run itself, taken step by step.
struct Taken {
  std::uint64_t steps = 0;
  accounting::Interval epsilon;
  std::optional<Error> failure;
};

Taken take(Mechanism& m) {
  Taken out;
  const std::uint64_t planned = m.config().privacy.target_steps.value_or(100000);
  while (m.t() < planned) {
    const small::Batch batch(m.config().privacy.noise_family == NoiseFamily::kGaussian ? 7 : 3,
                             m.t());
    try {
      step(m, batch.gradients);
    } catch (const Error& error) {
      m.drop_microbatches();
      out.failure = error;
      break;
    }
  }
  out.steps = m.t();
  const cbor::Value spent = m.trace_end().at("final_epsilon");
  out.epsilon = {spent.at("lower").as_float(), spent.at("upper").as_float()};
  return out;
}

// Whether the budget ended it.
bool expect_foreseen(const Config& config, const char* what) {
  SCOPED_TRACE(what);
  Mechanism m = small::mechanism(config);
  const Forecast forecast = m.forecast();
  EXPECT_EQ(m.t(), 0u);
  // Taken partway through the run, the forecast is the same.
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(3, forecast.steps); ++i)
    step(m, small::Batch(7, m.t()).gradients);
  const Forecast later = m.forecast();
  const Taken taken = take(m);
  for (const Forecast* each : {&forecast, &later}) {
    EXPECT_EQ(each->steps, taken.steps);
    if (!each->epsilon) {
      ADD_FAILURE() << "unknown";
      break;
    }
    EXPECT_EQ(each->epsilon->lower, taken.epsilon.lower);
    EXPECT_EQ(each->epsilon->upper, taken.epsilon.upper);
    EXPECT_EQ(each->failure.has_value(), taken.failure.has_value());
    if (each->failure && taken.failure) {
      EXPECT_STREQ(each->failure->what(), taken.failure->what());
    }
  }
  return taken.failure.has_value();
}

// DISCREET_STEPS: of each run; 12 in the slow test.
std::uint64_t planned_steps() {
  const char* asked = std::getenv("DISCREET_STEPS");
  return asked != nullptr ? std::strtoull(asked, nullptr, 10) : 6;
}

TEST(Forecast, IsTheRunInEveryMode) {
  const std::uint64_t steps = planned_steps(), third = steps / 3;
  int by_budget = 0;
  for (const double target : {8.0, 0.9}) {
    const auto run = [&](const char* what, const std::function<void(DpConfig&)>& change) {
      Config config = small::base();
      config.privacy.target_epsilon = target;
      config.privacy.target_steps = steps;
      change(config.privacy);
      by_budget += expect_foreseen(config, what) ? 1 : 0;
    };
    run("fixed", [](DpConfig&) {});
    run("rdp", [](DpConfig& dp) { dp.accountant = AccountantKind::kRdp; });
    run("gdp", [](DpConfig& dp) { dp.accountant = AccountantKind::kGdp; });
    run("step_decay", [&](DpConfig& dp) {
      dp.mode = ScheduleMode::kStepDecay;
      dp.noise_multiplier = 2;
      dp.decay_every = third;
    });
    run("budget_adaptive", [](DpConfig& dp) { dp.mode = ScheduleMode::kBudgetAdaptive; });
    run("meet_exactly", [](DpConfig& dp) { dp.mode = ScheduleMode::kMeetExactly; });
    run("dynamic", [](DpConfig& dp) { dp.mode = ScheduleMode::kDynamicProjection; });
    run("upscale", [](DpConfig& dp) { dp.projection_policy = ProjectionPolicy::kUpscale; });
    run("per epoch", [&](DpConfig& dp) {
      dp.accountant_granularity = Granularity::kPerEpoch;
      dp.declared_size = 20 * third;  // two thirds an epoch: the last is reserved whole
      dp.noise_multiplier = 2;
    });
    run("phases", [&](DpConfig& dp) {
      dp.warmup.until_step = third;
      dp.warmup.noise_multiplier = 2;
      dp.main.until_step = 2 * third;
      dp.cooldown.noise_multiplier = 3;
      dp.cooldown.clip_norm = 0.5;
    });
    run("released metrics, adaptive", [](DpConfig& dp) {
      dp.metrics_release = MetricsRelease::kDp;
      dp.clip_strategy = ClipStrategy::kPerLayer;
      dp.clip_norm_adaptive = true;
      dp.privacy_allocation = AllocationMode::kLayerWise;
    });
    run("hybrid, adaptive", [](DpConfig& dp) {
      dp.clip_strategy = ClipStrategy::kHybrid;
      dp.clip_norm_adaptive = true;
    });
    run("topk", [](DpConfig& dp) {
      dp.compression = Compression::kTopkDp;
      dp.compression_keep = 0.5;
      dp.clip_strategy = ClipStrategy::kPerLayer;
      dp.privacy_allocation = AllocationMode::kLayerWise;
    });
    run("sparse", [](DpConfig& dp) {
      dp.compression = Compression::kSparseDp;
      dp.compression_keep = 0.3;
    });
    run("rounded", [](DpConfig& dp) {
      dp.noise_family = NoiseFamily::kRoundedGaussian;
      dp.noise_discrete = 0x1p-10;
    });
  }
  EXPECT_GE(by_budget, 4);
}

TEST(Forecast, OfARunWithoutPlannedStepsEndsWithTheBudget) {
  Config config = small::base();
  config.privacy.target_steps.reset();
  config.privacy.target_epsilon = 1;
  expect_foreseen(config, "no target_steps");
}

TEST(Forecast, OfABudgetThatAdmitsNothingIsTheErrorOfTheFirstStep) {
  Config config = small::base();
  config.privacy.target_epsilon = 1e-3;
  Mechanism m = small::mechanism(config);
  const Forecast forecast = m.forecast();
  const Taken taken = take(m);
  EXPECT_EQ(forecast.steps, 0u);
  ASSERT_TRUE(forecast.failure && taken.failure);
  EXPECT_STREQ(forecast.failure->what(), taken.failure->what());
}

TEST(Forecast, NamesTheAccountantThatBoundsTheRun) {
  Config config = small::base();
  config.privacy.accountant = AccountantKind::kGdp;
  EXPECT_EQ(small::mechanism(config).forecast().bounded_by, "rdp");
  Mechanism m = small::mechanism(config);
  EXPECT_EQ(step(m, small::Batch(5).gradients).metrics.accountant_type_used, "rdp");
  config.privacy.sampling_rate = 1;
  config.privacy.effective_batch_size = 1000;
  config.privacy.target_epsilon = 60;
  EXPECT_EQ(small::mechanism(config).forecast().bounded_by, "gdp");
}

TEST(Forecast, OfOneHundredThousandStepsTakesLessThanASecond) {
  Config config = small::base();
  config.privacy.target_steps = 100000;
  const Mechanism m = small::mechanism(config);
  const auto begin = std::chrono::steady_clock::now();
  const Forecast forecast = m.forecast();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));  // loaded machines
  EXPECT_TRUE(forecast.is_ended_by_budget());
  EXPECT_GT(forecast.steps, 1000u);
}

}  // namespace
}  // namespace discreet::mechanism
