#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "discreet/accounting/composition.h"
#include "discreet/base/error.h"

namespace discreet::mechanism {

// The end of a run if every remaining step is taken: Mechanism::forecast(). It follows from the
// configuration, the layout and the composed events, and not from any record or released value. So
// it is public, and a claim for it holds whenever the run stops.
struct Forecast {
  std::uint64_t steps = 0;  // completed at the end of the run
  double sigma = 0;         // noise multiplier of the next step; 0 if it is not released
  // The spend at the end, as trace_end() will report it; empty if nothing is accounted (not
  // enabled, no noise), or if it is `unknown`.
  std::optional<accounting::Interval> epsilon;
  std::string bounded_by;  // Accountant::bounded_by() at the end
  // The error that the step after the last one will throw: kPrivacyBudgetExceeded if the budget
  // ends the run. Empty if all planned steps are taken.
  std::optional<Error> failure;
  std::vector<std::string> warnings;  // of the remaining steps, except that of the safety reserve
  std::string unknown;  // why epsilon and steps cannot be predicted; empty if they can

  bool is_ended_by_budget() const noexcept {
    return failure && failure->code() == ErrorCode::kPrivacyBudgetExceeded;
  }
};

}  // namespace discreet::mechanism
