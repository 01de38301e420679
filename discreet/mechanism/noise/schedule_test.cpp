#include "discreet/mechanism/noise/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "discreet/accounting/calibrate.h"
#include "discreet/base/error.h"
#include "discreet/mechanism/noise/projection.h"

namespace discreet::mechanism {
namespace {

using accounting::Adjacency;
using accounting::Event;

StepEvent poisson(double rate) {
  return {[rate](double sigma) {
    return Event(accounting::Gaussian{sigma}, accounting::Poisson{rate}, Adjacency::kAddRemove);
  }};
}

struct Followed {
  std::vector<double> sigmas;
  double epsilon = 0;
  Schedule schedule;
};

// Follows a scheduler through all its steps with a real accountant.
Followed follow(Scheduler scheduler, std::uint64_t steps, std::string_view accountant = "pld") {
  const auto spent = accounting::make_accountant(accountant);
  Followed run;
  for (std::uint64_t t = 0; t < steps; ++t) {
    run.sigmas.push_back(scheduler.sigma(t, *spent));
    if (t % scheduler.event().steps == 0) spent->compose(scheduler.event().at(run.sigmas.back()));
  }
  run.epsilon = spent->epsilon(scheduler.goal().delta).epsilon.upper;
  run.schedule = scheduler.schedule();
  return run;
}

const ScheduleGoal kGoal = {2.0, 1e-5, 320};

TEST(Schedule, FixedKeepsTheConfiguredMultiplierPhaseByPhase) {
  Scheduler scheduler(ScheduleMode::kFixed, {{0, 2.0}, {10, 1.0}}, {}, poisson(0.01));
  const Followed run = follow(std::move(scheduler), 20);
  EXPECT_EQ(run.sigmas.front(), 2.0);
  EXPECT_EQ(run.sigmas[9], 2.0);
  EXPECT_EQ(run.sigmas[10], 1.0);
}

TEST(Schedule, MeetsTheTargetExactlyFromBelow) {
  for (const char* accountant : {"pld", "rdp"}) {
    for (const double rate : {0.01, 0.1}) {
      const Followed run =
          follow(Scheduler(ScheduleMode::kMeetExactly, {{0, 1.0}}, kGoal, poisson(rate)),
                 kGoal.steps, accountant);
      EXPECT_LE(run.epsilon, kGoal.epsilon) << accountant;
      EXPECT_GE(run.epsilon, kGoal.epsilon * (1 - 1e-4)) << accountant;
      if (std::string_view(accountant) == "pld") {
        const auto oracle =
            accounting::calibrate_noise_multiplier(rate, kGoal.steps, {kGoal.epsilon, kGoal.delta});
        EXPECT_NEAR(run.sigmas.front(), oracle.value, 2e-4 * oracle.value);
      }
    }
  }
}

TEST(Schedule, InvertsInAtMostThirtyEvaluationsAndRemembersTheResult) {
  for (const double target : {0.01, 0.5, 2.0, 300.0})
    for (const double rate : {1e-5, 0.01, 0.9}) {
      int evaluations = 0;
      StepEvent counted = poisson(rate);
      counted.at = [&evaluations, at = counted.at](double sigma) {
        ++evaluations;
        return at(sigma);
      };
      Scheduler scheduler(ScheduleMode::kMeetExactly, {{0, 1.0}}, {target, 1e-5, 320}, counted);
      const auto spent = accounting::make_accountant("rdp");
      const double sigma = scheduler.sigma(0, *spent);
      EXPECT_GE(evaluations, 2);
      EXPECT_LE(evaluations, 30) << target << ", " << rate;
      const int before = evaluations;
      for (const std::uint64_t t : {0u, 1u, 319u}) EXPECT_EQ(scheduler.sigma(t, *spent), sigma);
      EXPECT_EQ(evaluations, before);
    }
}

TEST(Schedule, MeetsTheTargetExactlyWithPhasesInTheirProportion) {
  const Followed run = follow(Scheduler(ScheduleMode::kMeetExactly,
                                        {{0, 2.0}, {20, 1.0}, {300, 1.5}}, kGoal, poisson(0.05)),
                              kGoal.steps);
  EXPECT_LE(run.epsilon, kGoal.epsilon);
  EXPECT_GE(run.epsilon, kGoal.epsilon * (1 - 1e-4));
  EXPECT_NEAR(run.sigmas[0] / run.sigmas[20], 2, 1e-12);
  EXPECT_NEAR(run.sigmas[319] / run.sigmas[20], 1.5, 1e-12);
}

TEST(Schedule, BudgetAdaptiveSpendsWhatIsLeftAndNoMore) {
  const Followed run = follow(
      Scheduler(ScheduleMode::kBudgetAdaptive, {{0, 1.0}}, kGoal, poisson(0.05)), kGoal.steps);
  EXPECT_LE(run.epsilon, kGoal.epsilon);
  EXPECT_GE(run.epsilon, kGoal.epsilon * (1 - 1e-4));
  // A run that has spent something before gets more noise for the rest.
  Scheduler late(ScheduleMode::kBudgetAdaptive, {{0, 1.0}}, kGoal, poisson(0.05));
  const auto spent = accounting::make_accountant("pld");
  spent->compose(poisson(0.05).at(run.sigmas[0] * 0.7), 100);
  EXPECT_GT(late.sigma(100, *spent), run.sigmas[0]);
}

TEST(Schedule, DynamicProjectionRaisesNoiseAtOnceAndLowersItByHalves) {
  const Followed needed =
      follow(Scheduler(ScheduleMode::kMeetExactly, {{0, 1.0}}, kGoal, poisson(0.05)), kGoal.steps);
  const double fitting = needed.sigmas[0];
  const Followed low =
      follow(Scheduler(ScheduleMode::kDynamicProjection, {{0, fitting / 2}}, kGoal, poisson(0.05)),
             kGoal.steps);
  EXPECT_NEAR(low.sigmas[0], fitting, 1e-4 * fitting);
  const Followed high =
      follow(Scheduler(ScheduleMode::kDynamicProjection, {{0, fitting * 4}}, kGoal, poisson(0.05)),
             kGoal.steps);
  EXPECT_NEAR(high.sigmas[0], fitting * 2, 1e-3 * fitting);
  EXPECT_LT(high.sigmas[319], high.sigmas[0]);
  for (const Followed* run : {&low, &high}) EXPECT_LE(run->epsilon, kGoal.epsilon);
}

TEST(Schedule, RefusesATargetThatNoNoiseReaches) {
  Scheduler scheduler(ScheduleMode::kMeetExactly, {{0, 1.0}}, {1e-12, 1e-12, 100}, poisson(1.0));
  const auto spent = accounting::make_accountant("pld");
  try {
    scheduler.sigma(0, *spent);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPrivacyBudgetExceeded);
  }
  EXPECT_THROW(Scheduler(ScheduleMode::kMeetExactly, {{0, 1.0}}, {1, 1e-5, 0}, poisson(1)), Error);
}

TEST(Schedule, ClampsSigmaAndRefusesNan) {
  const auto spent = accounting::make_accountant("pld");
  Scheduler small(ScheduleMode::kFixed, {{0, 1e-20}, {1, 1e20}}, {}, poisson(0.5));
  EXPECT_EQ(small.sigma(0, *spent), 1e-8);
  EXPECT_EQ(small.sigma(1, *spent), 1e8);
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    try {
      const Scheduler scheduler(ScheduleMode::kFixed, {{0, bad}}, {}, poisson(0.5));
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNanInSigma);
    }
  }
}

TEST(Schedule, RestoresBitForBitInTheMiddleOfARun) {
  const auto make = [] {
    return Scheduler(ScheduleMode::kDynamicProjection, {{0, 3.0}, {100, 2.0}}, kGoal,
                     poisson(0.05));
  };
  Scheduler whole = make(), first = make();
  const auto spent = accounting::make_accountant("pld");
  for (std::uint64_t t = 0; t < kGoal.steps; ++t) {
    if (t == 137) {
      Scheduler second = make();
      second.restore(cbor::decode(cbor::encode(first.cache())));
      first = std::move(second);
    }
    const double sigma = whole.sigma(t, *spent);
    ASSERT_EQ(first.sigma(t, *spent), sigma) << t;
    spent->compose(poisson(0.05).at(sigma));
  }
  EXPECT_EQ(first.schedule(), whole.schedule());
}

TEST(Schedule, RefusesACacheThatIsNone) {
  Scheduler scheduler(ScheduleMode::kFixed, {{0, 1.0}}, {}, poisson(0.5));
  const auto piece = [](cbor::Value from, cbor::Value sigma) {
    return cbor::array({std::move(from), std::move(sigma)});
  };
  const auto cache = [](std::vector<cbor::Value> pieces) {
    return cbor::map(
        {{"pieces", cbor::array(std::move(pieces))}, {"scale", 1.0}, {"next_review", 0}});
  };
  for (const cbor::Value& bad :
       {cbor::Value(1), cache({}), cache({piece(1, 1.0)}), cache({piece(0, 1.0), piece(0, 1.0)}),
        cache({piece(0, 1e9)}), cache({piece(0, std::nan(""))}), cache({piece(0, 1)})}) {
    try {
      scheduler.restore(bad);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    }
  }
  EXPECT_EQ(scheduler.schedule(), (Schedule{{0, 1.0}}));
}

TEST(Schedule, CountsAnEpochWhereItBegins) {
  const StepEvent epoch = {[](double sigma) {
                             return Event(accounting::Gaussian{sigma}, accounting::BallsAndBins{10},
                                          Adjacency::kAddRemove);
                           },
                           10};
  const Schedule schedule = {{0, 1.0}, {20, 2.0}};
  const auto events = events_of(schedule, 0, 45, epoch);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].count, 2u);
  EXPECT_EQ(events[1].count, 3u);
}

TEST(Projection, IsExactForFixedSchedulesAndSaysHowSureItIs) {
  const auto spent = accounting::make_accountant("pld");
  Scheduler fixed(ScheduleMode::kFixed, {{0, 1.0}}, {8, 1e-5, 1000}, poisson(0.01));
  const Projection at_start = project(*spent, fixed, 0, 1'000'000);
  EXPECT_NEAR(at_start.epsilon, 1.82823667, 1e-7);
  EXPECT_EQ(at_start.confidence, 1);
  spent->compose(poisson(0.01).at(1.0), 400);
  EXPECT_NEAR(project(*spent, fixed, 400, 1'000'000).epsilon, at_start.epsilon, 1e-9);
  Scheduler adaptive(ScheduleMode::kBudgetAdaptive, {{0, 1.0}}, {8, 1e-5, 1000}, poisson(0.01));
  EXPECT_EQ(project(*spent, adaptive, 400, 1).confidence, 0.4);
  Scheduler endless(ScheduleMode::kFixed, {{0, 1.0}}, {8, 1e-5, 0}, poisson(0.01));
  EXPECT_EQ(project(*spent, endless, 0, 1).confidence, 0);
  EXPECT_TRUE(std::isinf(project(*spent, endless, 0, 1).epsilon));
}

TEST(Projection, ChargesWhatTheSamplerOfALargeModelLeavesOut) {
  const auto spent = accounting::make_accountant("pld");
  Scheduler fixed(ScheduleMode::kFixed, {{0, 1.0}}, {2, 1e-28, 1000}, poisson(0.01));
  const double small = project(*spent, fixed, 0, 1).epsilon;
  const double large = project(*spent, fixed, 0, 1'000'000'000).epsilon;
  EXPECT_GT(large, small);
  EXPECT_EQ(sampler_delta(NoiseFamily::kRoundedGaussian, 1000, 1000, 1), 0);
}

TEST(Projection, FindsTheFactorThatMeetsTheTarget) {
  const auto spent = accounting::make_accountant("pld");
  Scheduler scheduler(ScheduleMode::kFixed, {{0, 0.8}}, {1.8283, 1e-5, 1000}, poisson(0.01));
  const double factor = upscale_factor(*spent, scheduler, 0);
  EXPECT_NEAR(factor, 1.25, 1e-3);
  scheduler.scale_up(0, factor);
  EXPECT_LE(project(*spent, scheduler, 0, 0).epsilon, 1.8283);
  EXPECT_EQ(upscale_factor(*spent, scheduler, 0), 1);
  EXPECT_THROW(scheduler.scale_up(0, 0.5), Error);
}

}  // namespace
}  // namespace discreet::mechanism
