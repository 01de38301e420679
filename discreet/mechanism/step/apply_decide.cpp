// Steps 9 to 11 of Apply_v3: how much noise a step gets, and the event it is accounted as.
#include <fmt/core.h>

#include <algorithm>

#include "discreet/mechanism/noise/projection.h"
#include "discreet/mechanism/step/apply_step_impl.h"

namespace discreet::mechanism {
namespace {

using Fixed = Mechanism::Fixed;
using State = Mechanism::State;

constexpr const char* kOperator = "Apply_v3";

double project_final(const Fixed& fixed, const State& state, const Scheduler& scheduler) {
  return project(*state.accountant, scheduler, state.t, fixed.layout.trainable_parameters())
      .epsilon;
}

// Step 11: a projection above the target raises the noise or ends the run, as the policy says.
void guard(const Fixed& fixed, const State& state, Decided& decided) {
  const DpConfig& dp = fixed.dp();
  if (!decided.projected || !(*decided.projected > dp.target_epsilon) ||
      state.t < state.reserved_until || dp.projection_policy == ProjectionPolicy::kAdvise)
    return;
  if (dp.projection_policy == ProjectionPolicy::kAbort)
    budget_exceeded("DPScalingLawProjector_v1",
                    "the schedule would reach epsilon {} after {} steps, above the target {}, and "
                    "projection_policy is abort",
                    *decided.projected, decided.scheduler->goal().steps, dp.target_epsilon);
  const double factor = upscale_factor(*state.accountant, *decided.scheduler, state.t);
  decided.scheduler->scale_up(state.t, factor);
  decided.sigma = sigma_at(decided.scheduler->schedule(), state.t);
  decided.projected = project_final(fixed, state, *decided.scheduler);
  decided.warnings.push_back(
      fmt::format("noise raised by a factor {} at step {}: the projection was above the target",
                  factor, state.t));
}

}  // namespace

Decided decide(const Fixed& fixed, const State& state) {
  Decided out;
  out.scheduler = state.scheduler;
  out.projected = state.projected;
  if (!out.scheduler) return out;
  // Inside a reserved epoch sigma is what was reserved.
  const bool reserved = state.t < state.reserved_until;
  const std::uint64_t at = reserved ? state.reserved_until - fixed.steps_reserved() : state.t;
  const Schedule before = out.scheduler->schedule();
  out.sigma = reserved ? sigma_at(before, at) : out.scheduler->sigma(at, *state.accountant);
  if (out.scheduler->goal().steps != 0 &&
      (!out.projected || !(before == out.scheduler->schedule())))
    out.projected = project_final(fixed, state, *out.scheduler);
  guard(fixed, state, out);
  out.event = fixed.event(state.now.allocation, out.sigma);
  out.due = !reserved;
  if (reserved && !(*out.event == *state.reserved))
    invalid_config(kOperator,
                   "step {} differs from the reservation of its epoch: bounds or noise changed "
                   "inside the epoch; account PER_STEP",
                   state.t);
  return out;
}

void charge_again(const Fixed& fixed, State& lost, std::uint64_t released) {
  if (!lost.scheduler) return;
  const std::uint64_t events = fixed.steps_reserved() / fixed.sampling.steps_per_event();
  const std::optional<accounting::Event> begun =
      lost.t < lost.reserved_until ? lost.reserved : std::nullopt;
  lost.t = std::max(lost.t, lost.reserved_until);
  while (lost.t < released) {
    lost.now = prepare(fixed, lost.t, lost.clip_norms, lost.magnitudes);
    Decided decided = decide(fixed, lost);
    lost.accountant->compose(*decided.event, events);
    lost.scheduler = std::move(decided.scheduler);
    lost.projected = decided.projected;
    lost.t = lost.reserved_until = lost.t + fixed.steps_reserved();
    // Which coordinates a mask kept does not matter to the event, only how many.
    if (fixed.dp().compression == Compression::kTopkDp && !lost.magnitudes)
      lost.magnitudes.emplace(fixed.layout);
  }
  // An epoch that is started again is one more epoch of new batches. It is composed last: the noise
  // of the lost ones was decided without it.
  if (begun) lost.accountant->compose(*begun, events);
  lost.spent = lost.accountant->epsilon(fixed.delta);
}

}  // namespace discreet::mechanism
