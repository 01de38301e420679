// Models of several pieces of noise: one thread accounts while the others draw.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "discreet/mechanism/step/apply_testing.h"

namespace discreet::mechanism {
namespace {

constexpr std::size_t kElements = 50'000, kRecords = 4;

Mechanism mechanism(double target_epsilon, int threads) {
  Config config = public_run(400, kRecords);
  config.run.compute_dtype = ComputeDtype::kFloat32;
  config.privacy.seed = 11;
  config.privacy.target_epsilon = target_epsilon;
  config.privacy.target_steps = 100;
  config.privacy.noise_multiplier = 0.7;
  return mechanism_of(resolved(config), ModelLayout({{.name = "weight", .shape = {kElements}}}),
                      threads);
}

std::vector<float> gradients(std::uint64_t t) {
  std::mt19937_64 random(t);
  std::normal_distribution<float> normal;
  std::vector<float> values(kRecords * kElements);
  for (float& v : values) v = normal(random);
  return values;
}

StepResult step(Mechanism& m) {
  const std::vector<float> batch = gradients(m.t());
  m.accumulate(PerSampleGradients<float>{kRecords, {batch}});
  return m.release();
}

// The same in memory of its own.
StepResult step_in_fresh_memory(Mechanism& m) {
  const std::vector<float> batch = gradients(m.t());
  const Microbatch one = PerSampleGradients<float>{kRecords, {batch}};
  return m.apply(std::span(&one, 1));
}

TEST(ApplyThreads, ReleaseTheSameAndStopAtTheSameStep) {
  Mechanism one = mechanism(1.5, 1), three = mechanism(1.5, 3);
  bool stopped = false;
  for (int t = 0; t < 100 && !stopped; ++t) {
    std::optional<StepResult> expected;
    try {
      expected = step(one);
    } catch (const Error&) {
      stopped = true;
    }
    const Bytes before = three.save();
    if (!stopped) {
      const StepResult result = step(three);
      EXPECT_EQ(values(result), values(*expected));
      EXPECT_EQ(result.budget.after.upper, expected->budget.after.upper);
      EXPECT_EQ(three.save(), one.save());
      continue;
    }
    try {
      step(three);
      ADD_FAILURE() << "released beyond the target";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPrivacyBudgetExceeded);
    }
    three.drop_microbatches();
    EXPECT_EQ(three.save(), before);
  }
  EXPECT_TRUE(stopped);
}

TEST(ApplyThreads, MemoryOfAReleaseServesAgainWhateverIsInIt) {
  Mechanism fresh = mechanism(8, 2), again = mechanism(8, 2);
  const double* released = nullptr;
  bool served = false;
  for (int t = 0; t < 4; ++t) {
    StepResult result = step(again);
    EXPECT_EQ(values(result), values(step_in_fresh_memory(fresh)));
    served = served || result.gradients.values().data() == released;
    released = result.gradients.values().data();
    std::ranges::fill(result.gradients.values(), std::numeric_limits<double>::quiet_NaN());
    again.reuse(std::move(result.gradients));
  }
  EXPECT_EQ(again.save(), fresh.save());
  EXPECT_TRUE(served);
}

}  // namespace
}  // namespace discreet::mechanism
