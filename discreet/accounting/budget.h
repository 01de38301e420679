#pragma once

#include <memory>
#include <vector>

#include "discreet/accounting/accountant.h"

// A target that is checked before anything is released.
namespace discreet::accounting {

// When the spend of a step is checked.
enum class Granularity {
  kPerStep,   // before each step
  kPerEpoch,  // before each epoch, for the whole epoch; steps then use the reservation
};

// Guards an accountant with a target (epsilon, delta): a step that would raise epsilon.upper above
// the target is rejected before it is released, and nothing changes. There is no tolerance. Valid
// for schedules that are fixed in advance or depend only on the accountant's state; noise that
// depends on released values needs a filter (filter.h).
class PrivacyBudget {
 public:
  // accountant: holds the spend so far. epsilon > 0 finite, delta in (0, 1), otherwise
  // kInvalidDpConfig. Throws kPrivacyBudgetExceeded if the accountant already exceeds the target.
  PrivacyBudget(std::unique_ptr<Accountant> accountant, double epsilon, double delta,
                Granularity granularity);

  // kPerEpoch only: reserves every step of the epoch, or throws kPrivacyBudgetExceeded and reserves
  // nothing. Unused reservations of earlier epochs remain spent: the claim is for the planned
  // steps, because stopping early may depend on the data. Throws kInvalidDpConfig under kPerStep,
  // and as Accountant::compose does.
  void begin_epoch(const std::vector<RepeatedEvent>& steps);

  // Call this before the step is released. kPerStep: composes the step, or throws
  // kPrivacyBudgetExceeded. kPerEpoch: takes the step from the reservation, or throws
  // kPrivacyBudgetExceeded if the reservation does not contain it (any more).
  void step(const Event& event);

  // The bound for everything composed or reserved.
  EpsilonBound spent() const { return accountant_->epsilon(delta_); }
  const Accountant& accountant() const noexcept { return *accountant_; }

 private:
  void admit(const std::vector<RepeatedEvent>& events);
  std::unique_ptr<Accountant> accountant_;
  double epsilon_;
  double delta_;
  Granularity granularity_;
  std::vector<RepeatedEvent> reserved_;
};

}  // namespace discreet::accounting
