#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "discreet/accounting/accountant.h"
#include "discreet/base/cbor.h"
#include "discreet/config/config.h"

namespace discreet::mechanism {

// UML_OS.DifferentialPrivacy.PrivacyBudgetScheduler_v1
//
// The base multiplier of every step. The allocator (budget_allocation.h) turns it into the sigma_g
// of the parts; both are fixed in advance or follow the accountant's own state, so that PLD may
// compose them. Nothing here sees a gradient, a loss or a released value.
//
// With m(t) the configured multiplier of step t (phases included) and T = target_steps:
//   fixed               sigma(t) = m(t)
//   step_decay          sigma(t) = m(t) * decay_factor^floor(t / decay_every)
//   meet_exactly        sigma(t) = s m(t), with the least s for which all T steps have
//                       upper <= target; one inversion, before the first step
//   budget_adaptive     at every review, s is the least factor for which what was spent and the
//                       steps left together have upper <= target
//   dynamic_projection  begins with s = 1; at a review, with s* as above, s becomes s* if that is
//                       more noise, else the geometric mean of s and s*: noise rises at once and
//                       falls by halves
// Reviews are at t = 0 and every ceil(T / 16) steps, at beginnings of epochs where the event is
// one. Every inversion takes at most 30 evaluations of the accountant and errs to more noise. Every
// sigma is clamped to [1e-8, 1e8].

inline constexpr double kLeastSigma = 1e-8;
inline constexpr double kLargestSigma = 1e8;

// sigma in force from a step on, until the next piece.
struct SchedulePiece {
  std::uint64_t from = 0;
  double sigma = 1;
  friend bool operator==(const SchedulePiece&, const SchedulePiece&) = default;
};
using Schedule = std::vector<SchedulePiece>;  // ascending, the first from 0

// The sigma of step t.
double sigma_at(std::span<const SchedulePiece> schedule, std::uint64_t t);

// What one base multiplier means to the accountant.
struct StepEvent {
  std::function<accounting::Event(double sigma)> at;
  std::uint64_t steps = 1;  // how many steps one event covers: an epoch's where that is atomic
  std::uint64_t epoch = 1;  // sigma changes only at multiples of it: an epoch's under PER_EPOCH
};

// The events of the steps [begin, end) of a schedule; begin is where an event begins, and a last
// event that is begun counts whole.
std::vector<accounting::RepeatedEvent> events_of(std::span<const SchedulePiece> schedule,
                                                 std::uint64_t begin, std::uint64_t end,
                                                 const StepEvent& event);

struct ScheduleGoal {
  double epsilon = 0;
  double delta = 1e-5;
  std::uint64_t steps = 0;  // T
};

// The least s for which `spent` and the steps [begin, goal.steps) of s * schedule together have
// epsilon.upper <= goal.epsilon, to 1e-6 relative and never less. Throws kPrivacyBudgetExceeded if
// not even a sigma of 1e8 does it.
double least_scale(const accounting::Accountant& spent, std::span<const SchedulePiece> schedule,
                   std::uint64_t begin, const ScheduleGoal& goal, const StepEvent& event);

class Scheduler {
 public:
  // profile: m(t), from base_profile(). goal.steps is needed by the three modes that follow the
  // budget, else kInvalidDpConfig. event: how the run's events follow from sigma.
  Scheduler(ScheduleMode mode, Schedule profile, const ScheduleGoal& goal, StepEvent event);

  // The sigma of step t, clamped. `spent`: the accountant before step t. Steps come in order: a
  // review that is due is made and remembered. Throws kNanInSigma if a configured multiplier is not
  // finite, and as least_scale.
  double sigma(std::uint64_t t, const accounting::Accountant& spent);

  // The schedule as far as it is decided: the past, and the future if nothing is reviewed again.
  const Schedule& schedule() const noexcept { return decided_; }
  // Whether reviews may still change it.
  bool is_fixed() const noexcept;
  // The step at which it is reviewed next; none if it never is again.
  std::optional<std::uint64_t> next_review() const noexcept;
  const StepEvent& event() const noexcept { return event_; }
  const ScheduleGoal& goal() const noexcept { return goal_; }

  // The proactive up-scaling of the procedure's step 11: more noise by `factor` >= 1 from step t
  // on.
  void scale_up(std::uint64_t t, double factor);

  // The specification's sigma_schedule_cache, and back bit for bit; kMalformed for anything else.
  cbor::Value cache() const;
  void restore(const cbor::Value& cache);

 private:
  void review(std::uint64_t t, const accounting::Accountant& spent);
  void replace_from(std::uint64_t t, double scale);

  ScheduleMode mode_;
  Schedule profile_;
  ScheduleGoal goal_;
  StepEvent event_;
  std::uint64_t review_every_;  // 0: never
  Schedule decided_;
  double scale_ = 1;  // s
  std::uint64_t next_review_ = 0;
};

// m(t) of a resolved configuration: its multiplier, phase by phase, and the decay of step_decay.
// A step_decay that lasts longer than goal.steps (or 2^24 steps) is cut there.
Schedule base_profile(const DpConfig& resolved);

}  // namespace discreet::mechanism
