#pragma once

#include <vector>

#include "discreet/accounting/event.h"

// The literal rule of the specification for groups, kept for its traces (S1-II.F-8).
namespace discreet::accounting {

// An epsilon that is known *not* to be a bound, because groups that share a subsample are not
// independent steps. Example: four groups of multiplier 2 at rate .01 over 1000 steps have about
// 1.43 by this rule, but truly 1.83.
class SumRuleEpsilon {
 public:
  explicit SumRuleEpsilon(double value) noexcept : value_(value) {}
  double not_a_bound() const noexcept { return value_; }

 private:
  double value_;
};

// RDP_step(a) = sum over groups g of RDP(a; q, sigma_g), summed over steps in the given order and
// converted by the minimum over declared_orders(). An event without groups counts as one group.
// Supports Gaussian and GaussianGroups events (the adaptation query counts as a group with its own
// multiplier) with Poisson or no sampling; kInvalidDpConfig for others and for delta outside (0,
// 1).
SumRuleEpsilon rdp_sum_rule_epsilon(const std::vector<RepeatedEvent>& events, double delta);

}  // namespace discreet::accounting
