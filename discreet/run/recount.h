#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/config/config.h"
#include "discreet/run/trace.h"

namespace discreet::run {

// The spend of a run, recomputed from its configuration and the steps recorded in its trace: a
// number that a file claims is never trusted.
//
// Every `iter` line is one release with the noise multiplier stated in the line; if the event is an
// epoch, or the epoch is accounted at once, every started epoch is one release. Steps that were
// executed again on other bits count again. Releases before the first step are in the header. The
// sampler, the adjacency, the accountant and delta are those of the configuration.
//
// For Gaussian and rounded Gaussian noise the accounted multiplier is used, so the result equals
// the mechanism's own number in every bit (also for a PER_EPOCH run that stopped inside an epoch).
// For other families the multiplier of the schedule is used, without the rounding of sums, so the
// result is slightly below the mechanism's.
struct Recount {
  bool known = false;                             // false: nothing below is set
  std::string unknown;                            // the reason
  accounting::Interval spent{};                   // epsilon of everything recorded
  std::vector<accounting::RepeatedEvent> events;  // everything recorded
  // The upper end after the planned steps, or where the budget ends the run earlier, if the plan
  // alone determines the noise: mode fixed, without phases.
  std::optional<double> planned;
  std::vector<accounting::RepeatedEvent> planned_events;  // the events of `planned`
  // True if one more step, or epoch, would exceed target_epsilon; empty under the same conditions
  // as `planned`.
  std::optional<bool> at_budget;
  // A bound on the total variation distance between the releases and the recorded events: the error
  // of the noise sampler and the batch limit, from accounted_delta of the header.
  double distance = 0;
};

// resolved: the configuration named in the header of the trace. lines: the whole trace. Throws
// kMalformed, naming the line, if a step does not state its noise, or states more noise than a
// fixed schedule of the configuration.
Recount recount(const Config& resolved, std::span<const TraceLine> lines);

// True if a claimed upper end is below a recomputed one, beyond the last digits, in which two
// builds may differ. Report the larger of the two numbers.
bool is_below(double claimed, double recomputed) noexcept;

}  // namespace discreet::run
