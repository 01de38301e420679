#pragma once

#include <array>
#include <cstdint>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// Proof: ../pld.md

// A fast certified upper bound of epsilon for a growing run, for budget checks far from the budget.
// With K(c) the log-moment E[e^{cL}] of a step's loss at order c, any c gives
//     delta(epsilon) <= B(c) e^{sum K(c) - c epsilon},   B(c) = c^c / (1+c)^{1+c};
// the orders are integers, where K is a finite sum of positive terms. Sums are integers in units of
// 2^-40, with each K rounded up. Addition is therefore exact: equal multisets give equal bits in
// any order, and the cost of a step does not depend on the number of earlier steps.
class RenyiBudget {
 public:
  // Adds the steps in time independent of earlier ones. Sums saturate at infinity.
  void add(const Composition& steps);

  // An upper bound of epsilon(delta) in both directions; infinite if there is none. delta in (0,
  // 1).
  double epsilon_upper(double delta) const;

  // An upper bound of delta(epsilon) in both directions, at most 1 and never 0. epsilon >= 0.
  double delta_upper(double epsilon) const;

  friend bool operator==(const RenyiBudget& a, const RenyiBudget& b) {
    return a.sums_ == b.sums_ && a.failure_ == b.failure_;
  }

  static constexpr std::array<int, 24> kOrders = {
      1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128, 192, 256};

 private:
  __extension__ using Wide = unsigned __int128;
  static Wide rounded_up(double value, int bits);
  static double value_of(Wide sum, int bits);  // rounded up
  static void accumulate(Wide& sum, Wide term, std::uint64_t count);

  using Terms = std::array<Wide, kOrders.size()>;
  const Terms& terms_of(const GaussianSteps& event);

  Terms sums_{};      // sums of K(c) in units of 2^-40
  Wide failure_ = 0;  // sum of -log(1 - delta) in units of 2^-100
  // The terms of the last Gaussian step, because runs repeat it.
  double last_rate_ = 0, last_sigma_ = 0;
  Terms last_terms_{};
};

}  // namespace discreet::accounting
