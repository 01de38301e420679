#include "discreet/mechanism/noise/noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"
#include "discreet/random/gaussian.h"
#include "discreet/random/statistics_testing.h"

namespace discreet::mechanism {
namespace {

using random::Generator;
using random::Key;
using random::Position;

Generator generator(std::uint64_t seed = 1) {
  return Generator(random::Algorithm::kPhilox4x32, Key::from_seed(seed).derive("noise"));
}

ModelLayout layout() {
  return ModelLayout({{.name = "a.w", .shape = {100, 7}},
                      {.name = "frozen.w", .shape = {50}, .trainable = false},
                      {.name = "b.w", .shape = {333}},
                      {.name = "b.b", .shape = {0}}});
}

struct Step {
  NoiseRequest request;
  std::vector<double> stddev{2.0, 0.5};
  std::vector<double> scalars;
  std::vector<double> scalar_stddev;
  GradientSum values{layout()};
  NoiseState after;

  void run(const Generator& g, NoiseState state = {}) {
    const Partition parts = partition(layout(), Cut::kLayer);
    request.stddev = stddev;
    request.scalars = scalars;
    request.scalar_stddev = scalar_stddev;
    after = generate_noise(layout(), parts, request, g, state, values);
  }
};

TEST(Noise, HasTheStandardDeviationOfItsPartAndLeavesOutWhatIsNotPrivate) {
  const Generator g = generator();
  Step step;
  step.run(g);
  std::vector<double> expected(700);
  random::fill_gaussian(g, Position{0, 0, 0}, 2.0, expected);
  EXPECT_TRUE(std::ranges::equal(step.values.tensor(0), expected));
  expected.resize(333);
  random::fill_gaussian(g, Position{0, 350, 0}, 0.5, expected);
  EXPECT_TRUE(std::ranges::equal(step.values.tensor(2), expected));
  EXPECT_EQ(step.after.offset, 350u + 167);
  EXPECT_EQ(noise_indices(layout(), NoiseFamily::kGaussian, 0), 350u + 167);
}

TEST(Noise, ConsumesTheStreamOnceAndTheNextStepGoesOnWhereItEnded) {
  const Generator g = generator();
  Step first, second, again;
  first.run(g);
  second.run(g, first.after);
  again.run(g, first.after);
  EXPECT_TRUE(std::ranges::equal(second.values.values(), again.values.values()));
  EXPECT_FALSE(std::ranges::equal(first.values.values(), second.values.values()));
  EXPECT_EQ(second.after.offset, 2 * first.after.offset);
}

TEST(Noise, PerStepDependsOnStepAndTensorOnly) {
  const Generator g = generator();
  Step step;
  step.request.seed_per_step = true;
  step.request.step = 9;
  step.run(g);
  std::vector<double> expected(333);
  random::fill_gaussian(g, Position::at(9, 2), 0.5, expected);
  EXPECT_TRUE(std::ranges::equal(step.values.tensor(2), expected));
  EXPECT_EQ(step.after.offset, 0u);
}

TEST(Noise, DoesNotDependOnThreads) {
  const Generator g = generator();
  for (const NoiseFamily family : {NoiseFamily::kGaussian, NoiseFamily::kSkellam}) {
    Step one, four;
    one.request.family = four.request.family = family;
    four.request.threads = 4;
    one.run(g);
    four.run(g);
    EXPECT_TRUE(std::ranges::equal(one.values.values(), four.values.values()));
  }
}

TEST(Noise, OfDiscreteFamiliesKeepsWholeNumbersWhole) {
  const Generator g = generator();
  for (const NoiseFamily family :
       {NoiseFamily::kDiscreteGaussian, NoiseFamily::kRoundedGaussian, NoiseFamily::kSkellam}) {
    Step step;
    step.request.family = family;
    step.stddev = {30.0, 4.0};
    for (double& v : step.values.values()) v = 1e9;
    step.run(g);
    double square = 0;
    for (const double v : step.values.tensor(0)) {
      ASSERT_EQ(v, std::floor(v));
      square += (v - 1e9) * (v - 1e9);
    }
    // 700 draws: the relative deviation of the variance is sqrt(2/700) = 0.053; 4.9 of them.
    EXPECT_NEAR(square / 700 / 900, 1, 0.27);
    EXPECT_EQ(step.after.offset, 1033u);
  }
}

TEST(Noise, OfScalarsIsGaussianAndComesAfterTheTensors) {
  const Generator g = generator();
  Step plain, with;
  plain.run(g);
  with.scalars = {10, 20, 30};
  with.scalar_stddev = {1, 0, 2};
  with.run(g);
  EXPECT_TRUE(std::ranges::equal(plain.values.values(), with.values.values()));
  EXPECT_NE(with.scalars[0], 10);
  EXPECT_EQ(with.scalars[1], 20);
  EXPECT_EQ(with.after.offset, plain.after.offset + 2);
  std::vector<double> expected(3);
  random::fill_gaussian(g, Position{0, plain.after.offset, 0}, 1.0, expected);
  EXPECT_EQ(with.scalars[2], 30 + 2 * expected[2]);
}

TEST(Noise, FollowsTheGaussianLaw) {
  const ModelLayout big({{.name = "w", .shape = {200000}}});
  GradientSum values(big);
  const std::vector<double> stddev = {3.0};
  NoiseRequest request;
  request.stddev = stddev;
  generate_noise(big, partition(big, Cut::kFlat), request, generator(7), {}, values);
  std::vector<double> sample(values.values().begin(), values.values().end());
  EXPECT_LT(random::testing::kolmogorov(
                sample, [](double x) { return 0.5 * std::erfc(-x / 3.0 / std::sqrt(2.0)); }),
            random::testing::kKolmogorovLimit);
}

TEST(Noise, RefusesABadScaleBeforeAnythingIsWritten) {
  const Generator g = generator();
  const double inf = std::numeric_limits<double>::infinity();
  const auto code = [&](std::vector<double> stddev, NoiseFamily family) {
    Step step;
    step.stddev = std::move(stddev);
    step.request.family = family;
    ErrorCode found = ErrorCode::kIoError;
    try {
      step.run(g);
    } catch (const Error& error) {
      found = error.code();
    }
    for (const double v : step.values.values()) EXPECT_EQ(v, 0);
    return found;
  };
  EXPECT_EQ(code({1, std::nan("")}, NoiseFamily::kGaussian), ErrorCode::kNanInSigma);
  EXPECT_EQ(code({1, inf}, NoiseFamily::kGaussian), ErrorCode::kNanInSigma);
  EXPECT_EQ(code({1, -1}, NoiseFamily::kGaussian), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code({1}, NoiseFamily::kGaussian), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code({1, 1e6}, NoiseFamily::kSkellam), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code({1, 1e200}, NoiseFamily::kRoundedGaussian), ErrorCode::kInvalidDpConfig);
}

TEST(Noise, RefusesToPassTheEndOfTheStream) {
  Step step;
  try {
    step.run(generator(), NoiseState{random::kIndexLimit - 10});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRngConsumptionViolation);
  }
  for (const double v : step.values.values()) EXPECT_EQ(v, 0);
  Step late;
  late.request.seed_per_step = true;
  late.request.step = random::kStepLimit;
  EXPECT_THROW(late.run(generator()), Error);
}

}  // namespace
}  // namespace discreet::mechanism
