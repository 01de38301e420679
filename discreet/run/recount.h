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

// What a run has spent, computed again from its configuration and the steps that its trace records:
// a number that a file claims is never believed (soundness H8).
//
// Every `iter` line is one release with the noise multiplier that the line names; where the event
// is an epoch, or the epoch is accounted at once, every epoch that was started is one. Steps that
// were executed again on other bits count again. What was released before the first step is in the
// header. The sampler, the adjacency, the accountant and delta are those of the configuration.
//
// Gaussian and rounded Gaussian noise: the multiplier that was accounted, so that the result is the
// mechanism's own number in every bit (of a PER_EPOCH run that stopped inside an epoch too). Other
// families: that of the schedule, without the rounding of sums, so that the result is a little
// below the mechanism's.
struct Recount {
  bool known = false;                             // false: nothing below is set
  std::string unknown;                            // why
  accounting::Interval spent{};                   // epsilon of everything that is recorded
  std::vector<accounting::RepeatedEvent> events;  // everything that is recorded
  // Upper end after the planned steps, or where the budget ends the run before, if nothing but the
  // plan decides the noise: mode fixed, without phases.
  std::optional<double> planned;
  std::vector<accounting::RepeatedEvent> planned_events;  // those behind `planned`
  // Whether one more step, or epoch, would have passed target_epsilon; none as for `planned`.
  std::optional<bool> at_budget;
  // Bound of the distance, in total variation, of what was released from what the events say: what
  // the noise sampler and the batch limit leave out, from the header's accounted_delta.
  double distance = 0;
};

// resolved: the configuration that the trace's header names. lines: of the whole trace. Throws
// kMalformed, naming the line, if a step does not say its noise, or has more noise than a fixed
// schedule of the configuration.
Recount recount(const Config& resolved, std::span<const TraceLine> lines);

// Whether a claimed upper end is less than a recomputed one. Two builds may differ in the last
// digits of a certificate; state the larger of the two numbers.
bool is_below(double claimed, double recomputed) noexcept;

}  // namespace discreet::run
