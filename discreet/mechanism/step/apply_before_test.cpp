// What is released before the first step is a part of the run.
#include <gtest/gtest.h>

#include "discreet/accounting/pld.h"
#include "discreet/config/prevalidation.h"
#include "discreet/mechanism/step/apply_testing.h"

namespace discreet::mechanism {
namespace {

using accounting::Adjacency;
using accounting::Event;

ModelLayout model() { return ModelLayout({{.name = "w", .shape = {4, 3}}}); }

Config config_with(ScheduleMode mode, double target) {
  Config config = public_run(1000, 10);
  DpConfig& dp = config.privacy;
  dp.target_epsilon = target;
  dp.target_steps = 20;
  dp.noise_multiplier = 1;
  dp.mode = mode;
  return resolved(config);
}

PriorRelease histogram(double noise, Adjacency adjacency = Adjacency::kAddRemove) {
  return {Event(accounting::Gaussian{noise}, accounting::NoSampling{}, adjacency), 600};
}

Mechanism mechanism(const Config& config, std::vector<PriorRelease> before) {
  return mechanism_of(config, model(), 1, 1, std::move(before));
}

void step(Mechanism& m) {
  const std::vector<float> ones(12, 1.0f);
  const PerSampleGradients<float> gradients{1, {ones}};
  const Microbatch batch = gradients;
  m.apply(std::span(&batch, 1));
}

// The same events composed by PLD alone, at the delta that the mechanism accounts at.
double by_pld(const Mechanism& m, const std::vector<PriorRelease>& before, double sigma,
              std::uint64_t steps) {
  accounting::PldAccountant pld(m.config().privacy.adjacency);
  for (const PriorRelease& release : before) pld.add(release.event);
  if (steps > 0) pld.add(step_event(m.config().privacy, sigma), steps);
  const double delta = m.trace_header().at("accounted_delta").as_float();
  return pld.epsilon(delta).value.upper;
}

TEST(ApplyBefore, IsSpentBeforeTheFirstStepAndComposedWithEveryOther) {
  const std::vector<PriorRelease> before = {histogram(5), histogram(7)};
  Mechanism m = mechanism(config_with(ScheduleMode::kFixed, 8), before);
  EXPECT_NEAR(m.spent().epsilon.upper, by_pld(m, before, 1, 0), 1e-6);
  EXPECT_GT(m.spent().epsilon.upper, 0.5);
  const double first = m.spent().epsilon.upper;
  for (int t = 0; t < 20; ++t) step(m);
  EXPECT_NEAR(m.spent().epsilon.upper, by_pld(m, before, 1, 20), 1e-6);
  EXPECT_GT(m.spent().epsilon.upper, first);
  EXPECT_EQ(m.accountant().composed().size(), 3u);
}

TEST(ApplyBefore, LeavesLessOfTheBudgetToTheSchedule) {
  const Config config = config_with(ScheduleMode::kMeetExactly, 2);
  const auto sigma = [&](const std::vector<PriorRelease>& before) {
    Mechanism m = mechanism(config, before);
    for (int t = 0; t < 20; ++t) step(m);
    EXPECT_LE(m.spent().epsilon.upper, 2);
    EXPECT_GT(m.spent().epsilon.upper, 2 * (1 - 1e-4));
    const double used = m.schedule().at(0).sigma;
    EXPECT_NEAR(m.spent().epsilon.upper, by_pld(m, before, used, 20), 1e-6);
    return used;
  };
  EXPECT_GT(sigma({histogram(5)}), 1.005 * sigma({}));
}

TEST(ApplyBefore, AboveTheTargetOrOfAnotherAdjacencyIsRefused) {
  const auto code = [](double noise, Adjacency adjacency) {
    try {
      Mechanism m = mechanism(config_with(ScheduleMode::kFixed, 1), {histogram(noise, adjacency)});
      step(m);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kMalformed;
  };
  EXPECT_EQ(code(1, Adjacency::kAddRemove), ErrorCode::kPrivacyBudgetExceeded);
  EXPECT_EQ(code(50, Adjacency::kReplaceOne), ErrorCode::kInvalidDpConfig);
}

TEST(ApplyBefore, ComesBackFromASavedStateAndIsNotExchanged) {
  const Config config = config_with(ScheduleMode::kFixed, 8);
  Mechanism m = mechanism(config, {histogram(5)});
  step(m);
  const Bytes saved = m.save();
  step(m);
  Mechanism again = mechanism(config, {histogram(5)});
  again.restore(saved, 1);
  step(again);
  EXPECT_EQ(again.save(), m.save());
  for (const std::vector<PriorRelease>& other :
       {std::vector<PriorRelease>{}, {histogram(6)}, {histogram(5), histogram(5)}}) {
    Mechanism different = mechanism(config, other);
    const Bytes own = different.save();
    try {
      different.restore(saved, 1);
      ADD_FAILURE() << "restored";
    } catch (const Error& error) {
      EXPECT_NE(error.sentence().find("release before the first step"), std::string::npos);
    }
    EXPECT_EQ(different.save(), own);
  }
  // And without any the state has no field for it.
  EXPECT_EQ(cbor::decode(mechanism(config, {}).save()).find("before"), nullptr);
  EXPECT_EQ(mechanism(config, {}).trace_header().find("before"), nullptr);
}

}  // namespace
}  // namespace discreet::mechanism
