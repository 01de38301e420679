#include "discreet/training/defaults.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "discreet/training/train.h"

namespace discreet::training {
namespace {

// The value of each key that the defaults set, without the prefix of its section.
std::map<std::string, std::string> defaults(const std::string& yaml,
                                            std::vector<std::string> settings = {}) {
  std::map<std::string, std::string> out;
  for (const std::string& each : default_settings(read_config(yaml, "test", settings))) {
    std::string key = each.substr(0, each.find('='));
    const std::string prefix = "security.differential_privacy.";
    if (key.starts_with(prefix)) key.erase(0, prefix.size());
    out[key] = each.substr(each.find('=') + 1);
  }
  return out;
}

std::string csv(const std::string& size, const std::string& more = "") {
  return fmt::format(
      "data: {{format: csv, train: a.csv, label: y, classes: [a, b], numeric: {{u: [0, 1], v: [0, "
      "1]}}, categorical: {{w: [p, q]}}}}\n"
      "{}security: {{differential_privacy: {{target_epsilon: 1{}}}}}\n",
      more, size);
}

double mu(double epsilon, double delta = 1e-5) {
  return epsilon / std::sqrt(2 * std::log(1.25 / delta));
}

TEST(Defaults, FollowFromTheBudgetTheSizeAndTheColumns) {
  auto d = defaults(csv(", declared_size: 2000"));
  EXPECT_EQ(d.at("nonfinite"), "zero");
  EXPECT_EQ(d.at("effective_batch_size"), "512");
  EXPECT_EQ(d.at("target_steps"), "1000");
  EXPECT_EQ(d.at("mode"), "meet_exactly_at_target_steps");
  EXPECT_EQ(d.at("optimizer.average"), "0.99");
  // Three columns and the intercept: records of norm 2.
  EXPECT_NEAR(std::stod(d.at("optimizer.rate")), 4 * mu(1) * 2000 / 2 / 1000, 1e-3);
  d = defaults(csv(", declared_size: 100000"));
  EXPECT_EQ(d.at("effective_batch_size"), "4000");
  EXPECT_EQ(d.at("optimizer.rate"), "10");  // the reach is at its maximum
  EXPECT_EQ(defaults(csv(", declared_size: 300")).at("effective_batch_size"), "300");
}

TEST(Defaults, FollowTheStepsTheClipNormAndTheNoiseThatAreGiven) {
  auto d = defaults(csv(", declared_size: 2000, target_steps: 100"), {"clipping.norm=2"});
  EXPECT_FALSE(d.contains("target_steps"));
  EXPECT_EQ(d.at("optimizer.average"), "0.9");
  EXPECT_NEAR(std::stod(d.at("optimizer.rate")), 4 * mu(1) * 2000 / 2 / 100 / 2, 1e-2);
  d =
      defaults(csv(", declared_size: 2000, effective_batch_size: 100, noise_multiplier: 2, "
                   "target_steps: 400"));
  EXPECT_FALSE(d.contains("mode"));
  EXPECT_NEAR(std::stod(d.at("optimizer.rate")), 4 * (20 * 100 / 2.0) / 2 / 400, 1e-2);
  d = defaults(csv(", declared_size: 2000, noise_multiplier: 2"));
  EXPECT_FALSE(d.contains("target_steps"));  // the budget ends the run
  EXPECT_FALSE(d.contains("optimizer.rate"));
  d = defaults(csv(", declared_size: 2000, mode: budget_adaptive, target_steps: 10"));
  EXPECT_FALSE(d.contains("mode"));
  EXPECT_FALSE(d.contains("optimizer.average"));
}

TEST(Defaults, DependOnTheKindOfModelAndOptimizer) {
  const auto with = [](const std::string& more) {
    return defaults(csv(", declared_size: 2000", more));
  };
  const double rate = std::stod(with("").at("optimizer.rate"));
  const auto adam = with("optimizer: {kind: adam}\n");
  EXPECT_EQ(adam.at("optimizer.floor"), "noise");
  EXPECT_NEAR(std::stod(adam.at("optimizer.rate")), rate / 40, 1e-4);
  EXPECT_NEAR(std::stod(with("optimizer: {momentum: 0.9}\n").at("optimizer.rate")), rate / 10,
              1e-3);
  EXPECT_EQ(with("model: {kind: linear}\n").at("optimizer.rate"), "0.25");
  EXPECT_FALSE(with("optimizer: {rate: 3}\n").contains("optimizer.rate"));
}

TEST(Defaults, LeaveOutWhatNeedsTheSizeAndRunsWithoutPrivacy) {
  const auto unknown = defaults(csv(", sampling_rate: 0.1"));
  EXPECT_FALSE(unknown.contains("optimizer.rate"));
  EXPECT_FALSE(unknown.contains("effective_batch_size"));
  EXPECT_EQ(defaults(csv(", enabled: false, declared_size: 2000")).size(), 1u);
}

TEST(Defaults, FillWholeEpochsForSamplersWhoseEventIsTheEpoch) {
  const auto d =
      defaults(csv(", declared_size: 2000, effective_batch_size: 100, sampling_mode: "
                   "SHUFFLE_WITHOUT_REPLACEMENT_BALLS_AND_BINS_V1"));
  EXPECT_EQ(d.at("target_steps"), "800");
}

}  // namespace
}  // namespace discreet::training
