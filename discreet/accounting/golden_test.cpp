#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "discreet/accounting/group_privacy.h"
#include "discreet/accounting/pld.h"
#include "discreet/accounting/transform/transform.h"

namespace discreet::accounting {
namespace {

struct Setting {
  Composition steps;
  double delta;
  double truth[2];  // remove, add: rounded to binary64 from 42 digits
  int digits;       // significant ones as written, of the shorter of the two; 99 for a plain 0
  int agree;        // log10 of the relative difference between two independent evaluations
  std::string text;
};

int significant_digits(const std::string& decimal) {
  if (decimal == "0") return 99;
  int digits = 0;
  for (const char c : decimal.substr(0, decimal.find('e')))
    digits += c != '.' && (digits > 0 || c != '0');
  return digits;
}

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
    const std::string remove = row["remove"], add = row["add"];
    setting.truth[0] = std::stod(remove);
    setting.truth[1] = std::stod(add);
    setting.digits = std::min(significant_digits(remove), significant_digits(add));
    setting.agree = row["agree"];
    setting.text = row["events"].dump() + row["explicits"].dump() + row["delta"].dump();
    settings.push_back(std::move(setting));
  }
  return settings;
}

// Rounding is monotonic: ends that enclose the 40 digits enclose the binary64 nearest to them.
void expect_inside(const Interval& value, double truth, const Setting& setting) {
  EXPECT_LE(value.lower, truth) << setting.text;
  EXPECT_GE(value.upper, truth) << setting.text;
}

TEST(Golden, HoldsTwoHundredSettingsToFortyDigits) {
  std::set<std::string> distinct;
  for (const Setting& setting : golden()) {
    EXPECT_GE(setting.digits, 40) << setting.text;
    EXPECT_LE(setting.agree, -40) << setting.text;
    distinct.insert(setting.text);
  }
  EXPECT_GE(distinct.size(), 200u);
}

TEST(Golden, LiesInsideWhatTheAccountantCertifies) {
  for (const Setting& setting : golden()) {
    const Certified result = certified_epsilon(setting.steps, setting.delta);
    const double truth = std::max(setting.truth[0], setting.truth[1]);
    expect_inside(result.value, truth, setting);
    EXPECT_LE(result.error(), 2e-3 * std::max(1e-6, truth))
        << setting.text << ' ' << to_string(result.path);
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

// Contour integrals of exact moments, and another library's pessimistic estimates.
TEST(Golden, OfGroupsLieInsideWhatIsCertified) {
  std::ifstream file(DISCREET_GOLDEN "/group_epsilon.json");
  int count = 0, compared = 0;
  for (const auto& row : nlohmann::json::parse(file)) {
    std::vector<RepeatedEvent> events;
    for (const auto& step : row["steps"])
      events.push_back(
          {Event(Gaussian{step[1]}, Poisson{step[0]}, Adjacency::kAddRemove), step[2]});
    const double truth = row["epsilon"], agree = row["agree"];
    const Interval found = group_epsilon(events, row["group"], row["delta"]).value;
    EXPECT_LE(found.lower, truth * (1 + agree + 1e-12)) << row;
    EXPECT_GE(found.upper, truth * (1 - agree - 1e-12)) << row;
    EXPECT_LE(found.upper - found.lower, 5e-4 * std::max(truth, .01)) << row;
    ++count;
    if (row["dp_accounting"].is_null()) continue;
    EXPECT_LE(found.upper, 1.001 * double(row["dp_accounting"])) << row;
    ++compared;
  }
  EXPECT_GE(count, 200);
  EXPECT_GE(compared, 20);
}

}  // namespace
}  // namespace discreet::accounting
