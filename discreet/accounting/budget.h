#pragma once

#include <memory>
#include <vector>

#include "discreet/accounting/accountant.h"

// A target that is checked before anything is released.
namespace discreet::accounting {

// When the spend of a step is decided.
enum class Granularity {
  kPerStep,   // each step for itself
  kPerEpoch,  // a whole epoch at its beginning; its steps then draw on what was reserved
};

// Guards an accountant with a target (epsilon, delta): a step that would take epsilon.upper above
// the target is refused before it is released, with nothing changed. No tolerance is added in our
// favour. For schedules fixed in advance or driven by the accountant's own state; noise that reacts
// to released values needs a filter (filter.h).
class PrivacyBudget {
 public:
  // accountant: with what was spent so far; epsilon > 0 finite, delta in (0, 1). Throws
  // kInvalidDpConfig otherwise, kPrivacyBudgetExceeded if the accountant is above the target
  // already.
  PrivacyBudget(std::unique_ptr<Accountant> accountant, double epsilon, double delta,
                Granularity granularity);

  // kPerEpoch only: reserves every step of the epoch, or throws kPrivacyBudgetExceeded and reserves
  // nothing. What an earlier epoch reserved and did not use stays spent: claims are for the planned
  // steps, because stopping early may depend on the data. Throws kInvalidDpConfig under kPerStep
  // and as Accountant::compose does.
  void begin_epoch(const std::vector<RepeatedEvent>& steps);

  // To be called before the step is released. kPerStep: composes it, or throws
  // kPrivacyBudgetExceeded. kPerEpoch: takes it from the reservation, or throws
  // kPrivacyBudgetExceeded if it is not (or no longer) part of it.
  void step(const Event& event);

  // Of everything composed or reserved.
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
