#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "discreet/accounting/pld.h"
#include "discreet/accounting/transform.h"

namespace discreet::accounting {
namespace {

struct Setting {
  Composition steps;
  double delta;
  double truth[2];  // remove, add: rounded to binary64 from 30 digits
  std::string text;
};

std::vector<Setting> golden() {
  std::ifstream file(DISCREET_GOLDEN "/epsilon.json");
  std::vector<Setting> settings;
  for (const auto& row : nlohmann::json::parse(file)) {
    Setting setting;
    for (const auto& e : row["events"])
      setting.steps.gaussians.push_back({e["rate"], e["sigma"], e["count"]});
    for (const auto& e : row["explicits"])
      setting.steps.explicits.push_back({e["epsilon"], e["delta"], e["count"]});
    std::sort(setting.steps.gaussians.begin(), setting.steps.gaussians.end());
    std::sort(setting.steps.explicits.begin(), setting.steps.explicits.end());
    setting.delta = row["delta"];
    setting.truth[0] = std::stod(row["remove"].get<std::string>());
    setting.truth[1] = std::stod(row["add"].get<std::string>());
    setting.text = row["events"].dump() + row["explicits"].dump();
    settings.push_back(std::move(setting));
  }
  return settings;
}

// Half a unit in the last place is what rounding the reference may cost.
void expect_inside(const Interval& value, double truth, const Setting& setting) {
  EXPECT_LE(value.lower, truth * (1 + 0x1p-52)) << setting.text << ' ' << setting.delta;
  EXPECT_GE(value.upper, truth * (1 - 0x1p-52)) << setting.text << ' ' << setting.delta;
}

TEST(Golden, HasAtLeastTwoHundredSettings) { EXPECT_GE(golden().size(), 200u); }

TEST(Golden, LiesInsideWhatTheAccountantCertifies) {
  for (const Setting& setting : golden()) {
    const Certified result = certified_epsilon(setting.steps, setting.delta);
    const double truth = std::max(setting.truth[0], setting.truth[1]);
    expect_inside(result.value, truth, setting);
    EXPECT_LE(result.error(), 2e-3 * std::max(1e-6, truth))
        << setting.text << ' ' << setting.delta << ' ' << to_string(result.path);
  }
}

TEST(Golden, LiesInsideTheTransformInBothDirections) {
  int narrow = 0, all = 0;
  for (const Setting& setting : golden()) {
    // Long runs take the transform a second; they are the contour's.
    const auto long_run = [](const auto& e) { return e.count > 20000; };
    if (std::any_of(setting.steps.gaussians.begin(), setting.steps.gaussians.end(), long_run))
      continue;
    for (const int k : {0, 1}) {
      const double truth = setting.truth[k];
      const double width = std::min(2e-3, std::max(0.01 * truth, 1e-9));
      const auto result = transform_epsilon(
          setting.steps, k == 0 ? Direction::kRemove : Direction::kAdd, setting.delta, width);
      expect_inside(result.value, truth, setting);
      ++all;
      narrow += result.reached;
    }
  }
  // The exceptions are single steps at tiny rates and deltas, which have a closed form.
  EXPECT_GE(narrow, 0.98 * all) << all;
}

}  // namespace
}  // namespace discreet::accounting
