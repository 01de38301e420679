// The accounting of a whole run without its gradients and noise. Every decision is made by the
// functions that make it in release(); steps that are decided alike are composed together.
#include <algorithm>
#include <limits>

#include "discreet/mechanism/step/apply_step_impl.h"

namespace discreet::mechanism {
namespace {

using Fixed = Mechanism::Fixed;
using State = Mechanism::State;

class DryRun {
 public:
  DryRun(const Fixed& fixed, std::unique_ptr<State> state, std::uint64_t end)
      : fixed_(fixed), state_(std::move(state)), first_(state_->t), end_(end) {}

  Forecast run() {
    try {
      while (state_->t < end_) advance();
    } catch (const Error& error) {
      failure_ = error;
    }
    settle();
    Forecast out;
    out.steps = state_->t;
    out.sigma = sigma_;
    if (state_->scheduler)
      out.epsilon = accounting::Interval{state_->spent.epsilon.lower, state_->cumulative_epsilon};
    out.bounded_by = state_->accountant->bounded_by();
    out.failure = std::move(failure_);
    out.warnings = std::move(warnings_);
    return out;
  }

 private:
  // Reservations of one event each, from step t on. Composed, not yet compared with the budget.
  struct Stretch {
    std::uint64_t t;
    accounting::Event event;
    std::uint64_t count;
  };

  std::uint64_t events_each() const {
    return fixed_.steps_reserved() / fixed_.sampling.steps_per_event();
  }

  // Takes every step that is decided like step t.
  void advance() {
    State& s = *state_;
    require_step(fixed_, s);
    Decided decided = decide(fixed_, s);
    warnings_.insert(warnings_.end(), decided.warnings.begin(), decided.warnings.end());
    if (decided.sigma > 0)
      require_drawable(fixed_.dp().noise_family,
                       noise_scales(fixed_, s.now.allocation, decided.sigma).drawn);
    if (s.t == first_) sigma_ = decided.sigma;
    const std::uint64_t next = next_change(decided);
    s.scheduler = std::move(decided.scheduler);
    s.projected = decided.projected;
    if (decided.due) {
      const std::uint64_t each = fixed_.steps_reserved();
      const std::uint64_t count = (next - s.t + each - 1) / each;
      if (pending_.empty()) before_ = s.accountant->clone();
      s.accountant->compose(*decided.event, count * events_each());
      pending_.push_back({s.t, *decided.event, count});
      s.reserved_until = s.t + count * each;
      s.reserved = std::move(decided.event);
    }
    s.t = next;
    // Which coordinates a mask keeps does not matter to the event, only how many.
    if (fixed_.dp().enabled && fixed_.dp().compression == Compression::kTopkDp && !s.magnitudes)
      s.magnitudes.emplace(fixed_.layout);
    s.now = prepare(fixed_, s.t, s.clip_norms, s.magnitudes);
  }

  // The first step after t that may be decided otherwise.
  std::uint64_t next_change(const Decided& decided) const {
    const State& s = *state_;
    const DpConfig& dp = fixed_.dp();
    std::uint64_t next = end_;
    const auto at = [&](std::uint64_t t) {
      if (t > s.t) next = std::min(next, t);
    };
    for (const PhaseOverride* phase : {&dp.warmup, &dp.main})
      if (phase->until_step) at(*phase->until_step);
    if (dp.compression == Compression::kTopkDp) at(1);
    // Where require_step() may reject the step.
    const std::uint64_t planned = charged_steps(dp);
    for (const std::uint64_t limit : {planned, 2 * planned - s.again, std::uint64_t{1} << 24})
      at(limit);
    if (!decided.scheduler) return next;
    const Schedule& schedule = decided.scheduler->schedule();
    const auto piece = std::ranges::upper_bound(schedule, s.t, {}, &SchedulePiece::from);
    if (piece != schedule.end()) at(piece->from);
    if (const auto review = decided.scheduler->next_review()) at(*review);
    const bool is_guarded = dp.projection_policy != ProjectionPolicy::kAdvise &&
                            decided.projected && *decided.projected > dp.target_epsilon;
    if (is_guarded) at(s.t + fixed_.steps_reserved());
    if (!decided.due) at(s.reserved_until);
    return next;
  }

  // Compares what is pending with the budget. Epsilon never falls with more events, so the first
  // reservation that exceeds it is found by bisection.
  void settle() {
    if (pending_.empty()) return;
    State& s = *state_;
    const double target = fixed_.dp().target_epsilon;
    const accounting::EpsilonBound all = s.accountant->epsilon(fixed_.delta);
    if (all.epsilon.upper <= target) return keep(all);
    std::uint64_t within = 0;
    std::uint64_t beyond = 0;
    for (const Stretch& stretch : pending_) beyond += stretch.count;
    while (beyond - within > 1) {
      const std::uint64_t middle = within + (beyond - within) / 2;
      const bool fits = composed(middle)->epsilon(fixed_.delta).epsilon.upper <= target;
      (fits ? within : beyond) = middle;
    }
    s.accountant = composed(within);
    if (within > 0) keep(s.accountant->epsilon(fixed_.delta));
    Decided refused;
    refused.due = true;
    for (const Stretch& stretch : pending_) {
      if (within < stretch.count) {
        s.t = stretch.t + within * fixed_.steps_reserved();
        refused.event = stretch.event;
        break;
      }
      within -= stretch.count;
    }
    try {
      compose_within_budget(fixed_, s, refused);
    } catch (const Error& error) {
      failure_ = error;
    }
  }

  void keep(const accounting::EpsilonBound& spent) {
    state_->spent = spent;
    state_->cumulative_epsilon = std::max(state_->cumulative_epsilon, spent.epsilon.upper);
  }

  // The accountant after the first `count` pending reservations.
  std::unique_ptr<accounting::Accountant> composed(std::uint64_t count) const {
    auto out = before_->clone();
    for (const Stretch& stretch : pending_) {
      const std::uint64_t own = std::min(count, stretch.count);
      if (own > 0) out->compose(stretch.event, own * events_each());
      count -= own;
    }
    return out;
  }

  const Fixed& fixed_;
  std::unique_ptr<State> state_;
  std::uint64_t first_, end_;
  double sigma_ = 0;
  std::unique_ptr<accounting::Accountant> before_;
  std::vector<Stretch> pending_;
  std::optional<Error> failure_;
  std::vector<std::string> warnings_;
};

}  // namespace

Forecast Mechanism::forecast() const {
  const DpConfig& dp = fixed_->dp();
  std::uint64_t end = dp.target_steps.value_or(std::numeric_limits<std::uint64_t>::max());
  std::string unknown;
  if (dp.enabled && fixed_->adapts() && state_->now.allocation.plan.flat_clip &&
      dp.adaptive_accounting == AdaptiveAccounting::kHeuristic)
    unknown = "the noise depends on bounds that follow private norms inside a flat bound";
  if (!dp.enabled && !dp.target_steps)
    unknown = "without privacy, a run ends at target_steps, which is not set";
  // The kind of the next step is known anyway.
  if (!unknown.empty()) end = std::min(end, state_->t + 1);
  auto state = std::make_unique<State>(*fixed_);
  const State& own = *state_;
  state->t = own.t;
  state->reserved_until = own.reserved_until;
  state->cumulative_epsilon = own.cumulative_epsilon;
  state->projected = own.projected;
  state->accountant = own.accountant->clone();
  state->again = own.again;
  state->clip_norms = own.clip_norms;
  state->magnitudes = own.magnitudes;
  state->reserved = own.reserved;
  state->scheduler = own.scheduler;
  state->now = own.now;
  state->spent = own.spent;
  Forecast out = DryRun(*fixed_, std::move(state), end).run();
  if (unknown.empty() || (out.failure && out.steps == own.t)) return out;
  const double sigma = out.sigma;
  out = {};
  out.sigma = sigma;
  out.unknown = std::move(unknown);
  return out;
}

}  // namespace discreet::mechanism
