#include "discreet/training/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "discreet/base/error.h"

namespace discreet::training {
namespace {

ModelLayout layout() {
  return ModelLayout(
      {{.name = "w", .shape = {2}}, {.name = "frozen", .shape = {1}, .trainable = false}});
}

struct Model {
  std::vector<float> w = {1, -1}, frozen = {5};
  std::vector<std::span<float>> spans() { return {w, frozen}; }
};

void step(Optimizer& optimizer, Model& model, double a, double b, double variance = 0) {
  GradientSum gradient(layout());
  gradient.tensor(0)[0] = a;
  gradient.tensor(0)[1] = b;
  const std::vector<double> variances = {variance, 0};
  optimizer.step(gradient, variances, model.spans());
}

TEST(Optimizer, SgdFollowsTheGradientWithMomentumAndDecay) {
  Model model;
  Optimizer optimizer({.rate = 0.5, .momentum = 0.5, .weight_decay = 0.1}, layout());
  step(optimizer, model, 1, 0);
  EXPECT_FLOAT_EQ(model.w[0], 1 - 0.5 * (1 + 0.1));
  EXPECT_FLOAT_EQ(model.w[1], -1 + 0.5 * 0.1);
  step(optimizer, model, 1, 0);
  EXPECT_FLOAT_EQ(model.w[0], 0.45 - 0.5 * (1.5 + 0.045));
  EXPECT_EQ(model.frozen[0], 5);
}

TEST(Optimizer, RatesFallAsScheduled) {
  Model model;
  for (const RateSchedule schedule : {RateSchedule::kCosine, RateSchedule::kLinear}) {
    Optimizer optimizer({.rate = 2, .schedule = schedule, .steps = 4}, layout());
    EXPECT_EQ(optimizer.rate(), 2);
    step(optimizer, model, 0, 0);
    step(optimizer, model, 0, 0);
    EXPECT_NEAR(optimizer.rate(), 1, 1e-15);
    for (int t = 0; t < 5; ++t) step(optimizer, model, 0, 0);
    EXPECT_NEAR(optimizer.rate(), 0, 1e-15);
  }
}

TEST(Optimizer, AdamMovesByItsRateForASteadyGradient) {
  Model model;
  Optimizer optimizer({.kind = OptimizerKind::kAdam, .rate = 0.01}, layout());
  for (int t = 0; t < 10; ++t) step(optimizer, model, 3, -7);
  EXPECT_NEAR(model.w[0], 1 - 0.1, 1e-5);
  EXPECT_NEAR(model.w[1], -1 + 0.1, 1e-5);
}

// The second moment of g + noise is g^2 + variance; without the correction the steps of small
// gradients shrink by sqrt(variance) / |g|.
TEST(Optimizer, AdamTakesTheNoiseOutOfTheSecondMoment) {
  std::mt19937_64 random(4);
  std::normal_distribution<double> noise(0, 2);
  Model corrected, inflated;
  const OptimizerOptions options{.kind = OptimizerKind::kAdam, .rate = 0.001, .floor = 0.05};
  Optimizer with(options, layout()), without(options, layout());
  for (int t = 0; t < 4000; ++t) {
    const double g = 0.5 + noise(random);
    step(with, corrected, g, 0, 4);
    step(without, inflated, g, 0, 0);
  }
  const double far = 1 - corrected.w[0], near = 1 - inflated.w[0];
  // |g| / sqrt(g^2 + 4) = 0.243 of the way without; about the whole way with, more or less as the
  // estimate of g^2 falls.
  EXPECT_NEAR(near, 4 * 0.243, 0.25);
  EXPECT_GT(far, 2.5 * near);
}

// Half of the time the second moment of pure noise is below the noise's variance, and a tiny floor
// makes a huge step of it.
TEST(Optimizer, AFloorOfTheNoiseBoundsAdamsSteps) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> noise(0, 2);
  Model bounded, huge;
  const OptimizerOptions tiny{.kind = OptimizerKind::kAdam, .rate = 0.01};
  OptimizerOptions follows = tiny;
  follows.floor_is_noise = true;
  Optimizer with(follows, layout()), without(tiny, layout());
  for (int t = 0; t < 1000; ++t) {
    const double g = noise(random);
    step(with, bounded, g, 0, 4);
    step(without, huge, g, 0, 4);
  }
  // Steps of 0.01 times an average of ten draws in units of their deviation: a walk of about 0.3.
  EXPECT_NEAR(bounded.w[0], 1, 1.5);
  EXPECT_GT(std::fabs(huge.w[0] - 1), 1000);
}

TEST(Optimizer, AveragesIterates) {
  Model model;
  Optimizer optimizer({.rate = 1, .average = 0.5}, layout());
  EXPECT_TRUE(optimizer.average(0).empty());
  step(optimizer, model, 1, 0);  // w: 1 -> 0
  EXPECT_EQ(optimizer.average(0)[0], 0.5f);
  step(optimizer, model, -1, 0);  // w: 0 -> 1
  EXPECT_EQ(optimizer.average(0)[0], 0.75f);
}

TEST(Optimizer, RestoresBitForBitAndRefusesOtherBytes) {
  const OptimizerOptions options{.kind = OptimizerKind::kAdam, .average = 0.9};
  Model a, b;
  Optimizer whole(options, layout());
  for (int t = 0; t < 3; ++t) step(whole, a, 0.1 * t, 1, 0.5);
  b = a;
  Optimizer second(options, layout());
  second.restore(whole.save());
  for (int t = 0; t < 3; ++t) {
    step(whole, a, 0.3, -t, 0.5);
    step(second, b, 0.3, -t, 0.5);
  }
  EXPECT_EQ(a.w, b.w);
  EXPECT_EQ(whole.save(), second.save());
  const Bytes before = second.save();
  Bytes cut = before;
  cut.pop_back();
  EXPECT_THROW(second.restore(cut), Error);
  Optimizer other(options, ModelLayout({{.name = "w", .shape = {3}}}));
  EXPECT_THROW(other.restore(before), Error);
}

TEST(Optimizer, RefusesOptionsOutOfRangeAndNamesThem) {
  const double nan = std::nan("");
  for (const OptimizerOptions& bad :
       {OptimizerOptions{.rate = 0}, OptimizerOptions{.rate = nan}, OptimizerOptions{.momentum = 1},
        OptimizerOptions{.beta2 = -1}, OptimizerOptions{.floor = 0},
        OptimizerOptions{.weight_decay = -1}, OptimizerOptions{.average = 1.0},
        OptimizerOptions{.schedule = RateSchedule::kCosine}})
    EXPECT_THROW(Optimizer(bad, layout()), Error);
  Optimizer optimizer({}, layout());
  Model model;
  EXPECT_THROW(optimizer.step(GradientSum(layout()), std::vector<double>{1}, model.spans()), Error);
  EXPECT_EQ(optimizer.steps(), 0u);
}

}  // namespace
}  // namespace discreet::training
