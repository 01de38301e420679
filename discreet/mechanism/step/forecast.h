#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "discreet/accounting/composition.h"
#include "discreet/base/error.h"

namespace discreet::mechanism {

// How a run will end if every step from here on is taken: Mechanism::forecast(). It follows from
// the configuration, the layout and what was composed so far, and from no record or released value:
// it is public, and a claim for it holds whenever the run stops.
struct Forecast {
  std::uint64_t steps = 0;  // done when the run ends
  // Spent by then, as trace_end() will say; none where nothing is accounted (not enabled, no
  // noise), or `unknown`.
  std::optional<accounting::Interval> epsilon;
  std::string bounded_by;  // Accountant::bounded_by() then
  // What the step after the last one will throw: kPrivacyBudgetExceeded where the budget ends the
  // run. None: all planned steps are taken.
  std::optional<Error> failure;
  std::vector<std::string> warnings;  // of the steps to come, except that of the safety reserve
  std::string unknown;  // why epsilon and steps are not known in advance; empty if they are

  bool is_ended_by_budget() const noexcept {
    return failure && failure->code() == ErrorCode::kPrivacyBudgetExceeded;
  }
};

}  // namespace discreet::mechanism
