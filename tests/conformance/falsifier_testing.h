#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "discreet/accounting/accountant.h"
#include "discreet/base/error.h"
#include "tests/conformance/falsifier.h"

namespace discreet::conformance {

inline constexpr Direction kBoth[] = {Direction::kRemove, Direction::kAdd};

// Claims about one simulated mechanism at one delta, and what is expected of them. The numbers go
// into the test's record (--gtest_output=xml) under `name`.
class Claims {
 public:
  Claims(std::string name, Losses losses, double delta)
      : name_(std::move(name)), losses_(std::move(losses)), delta_(delta) {}

  // A claim that must stand. False alarm: kFalseAlarm.
  void expect_stands(Direction direction, double epsilon, std::string_view what) const {
    const auto [label, verdict] = judge(direction, epsilon, what);
    EXPECT_FALSE(verdict.rejected()) << label << ": epsilon " << epsilon << " at " << delta_
                                     << " exceeded by at least " << verdict.excess;
  }

  // A claim that must be rejected. Power: kPowerMargin.
  void expect_rejected(Direction direction, double epsilon, std::string_view what) const {
    const auto [label, verdict] = judge(direction, epsilon, what);
    EXPECT_GT(verdict.margin(), kPowerMargin)
        << label << ": epsilon " << epsilon << " at " << delta_ << " is not rejected: excess "
        << verdict.excess << ", deviation " << verdict.deviation;
  }

  // known.upper stands; 0.9 of known.lower, the truth or the best lower bound known, does not.
  void expect_tight(Direction direction, Interval known) const {
    EXPECT_LE(known.lower, known.upper);
    expect_stands(direction, known.upper, "known_upper");
    expect_rejected(direction, 0.9 * known.lower, "tenth_below_lower");
  }

  // The claim of every accountant that takes the event stands in both directions; at least so many
  // of the five take it.
  void expect_accountants_stand(const accounting::Event& event, std::uint64_t count,
                                int at_least) const {
    int took = 0;
    for (const char* name : {"pld", "rdp", "moments", "gdp", "f_dp"}) {
      const auto accountant = accounting::make_accountant(name);
      try {
        accountant->compose(event, count);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
        continue;
      }
      ++took;
      const double epsilon = accountant->epsilon(delta_).epsilon.upper;
      for (const Direction direction : kBoth) expect_stands(direction, epsilon, name);
    }
    EXPECT_GE(took, at_least) << describe(event);
  }

 private:
  std::pair<std::string, Verdict> judge(Direction direction, double epsilon,
                                        std::string_view what) const {
    std::string label =
        name_ + '.' + std::string(what) + (direction == Direction::kRemove ? ".remove" : ".add");
    const Verdict verdict = falsify(losses_, direction, epsilon, delta_);
    testing::Test::RecordProperty(label, "epsilon " + std::to_string(epsilon) + " margin " +
                                             std::to_string(verdict.margin()));
    return {std::move(label), verdict};
  }

  std::string name_;
  Losses losses_;
  double delta_;
};

}  // namespace discreet::conformance
