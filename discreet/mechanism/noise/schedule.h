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
// The base multiplier of every step. The allocator (budget_allocation.h) derives the sigma_g of the
// parts from it. Both are fixed in advance or depend only on the accountant's state, so PLD may
// compose them. No gradient, loss or released value is used here.
//
// With m(t) the configured multiplier of step t (phases included) and T = target_steps:
//   fixed               sigma(t) = m(t)
//   step_decay          sigma(t) = m(t) * decay_factor^floor(t / decay_every)
//   meet_exactly        sigma(t) = s m(t), with the smallest s for which all T steps have
//                       upper <= target; one inversion, before the first step
//   budget_adaptive     at every review, s is the smallest factor for which the spend so far and
//                       the remaining steps together have upper <= target
//   dynamic_projection  starts with s = 1; at a review, with s* as above, s becomes s* if that is
//                       more noise, otherwise the geometric mean of s and s*: noise increases at
//                       once and decreases gradually
// Reviews happen at t = 0 and every ceil(T / 16) steps; if the event is an epoch, at starts of
// epochs. Every inversion evaluates the accountant at most 30 times and errs towards more noise.
// Every sigma is clamped to [1e-8, 1e8].

inline constexpr double kLeastSigma = 1e-8;
inline constexpr double kLargestSigma = 1e8;

// The sigma from step `from` on, until the next piece.
struct SchedulePiece {
  std::uint64_t from = 0;
  double sigma = 1;
  friend bool operator==(const SchedulePiece&, const SchedulePiece&) = default;
};
using Schedule = std::vector<SchedulePiece>;  // ascending; the first starts at 0

// The sigma of step t.
double sigma_at(std::span<const SchedulePiece> schedule, std::uint64_t t);

// How a base multiplier translates to accounting events.
struct StepEvent {
  std::function<accounting::Event(double sigma)> at;
  std::uint64_t steps = 1;  // steps covered by one event: an epoch's if the epoch is atomic
  std::uint64_t epoch = 1;  // sigma changes only at multiples of it: an epoch's under PER_EPOCH
};

// The events of the steps [begin, end) of a schedule. An event must start at `begin`; a partial
// last event counts as a whole.
std::vector<accounting::RepeatedEvent> events_of(std::span<const SchedulePiece> schedule,
                                                 std::uint64_t begin, std::uint64_t end,
                                                 const StepEvent& event);

struct ScheduleGoal {
  double epsilon = 0;
  double delta = 1e-5;
  std::uint64_t steps = 0;  // T
};

// The smallest s for which `spent` and the steps [begin, goal.steps) of s * schedule together have
// epsilon.upper <= goal.epsilon, to 1e-6 relative, rounded up. Throws kPrivacyBudgetExceeded if
// even a sigma of 1e8 is insufficient.
double least_scale(const accounting::Accountant& spent, std::span<const SchedulePiece> schedule,
                   std::uint64_t begin, const ScheduleGoal& goal, const StepEvent& event);

class Scheduler {
 public:
  // profile: m(t), from base_profile(). goal.steps: required by the three modes that follow the
  // budget, otherwise kInvalidDpConfig. event: how the run's events depend on sigma.
  Scheduler(ScheduleMode mode, Schedule profile, const ScheduleGoal& goal, StepEvent event);

  // The sigma of step t, clamped. spent: the accountant before step t. Call it for steps in order:
  // it performs and remembers a review that is due. Throws kNanInSigma if a configured multiplier
  // is not finite, and as least_scale.
  double sigma(std::uint64_t t, const accounting::Accountant& spent);

  // The decided schedule: the past, and the future without further reviews.
  const Schedule& schedule() const noexcept { return decided_; }
  // True if no review can change it any more.
  bool is_fixed() const noexcept;
  // The step of the next review; empty if there is none.
  std::optional<std::uint64_t> next_review() const noexcept;
  const StepEvent& event() const noexcept { return event_; }
  const ScheduleGoal& goal() const noexcept { return goal_; }

  // The proactive up-scaling of step 11 of the procedure: multiplies the noise by `factor` >= 1
  // from step t on.
  void scale_up(std::uint64_t t, double factor);

  // The sigma_schedule_cache of the specification; restore is exact to the bit and throws
  // kMalformed for anything else.
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

// m(t) of a resolved configuration: its multiplier in each phase, and the decay of step_decay. A
// step_decay longer than goal.steps (or 2^24 steps) is cut there.
Schedule base_profile(const DpConfig& resolved);

}  // namespace discreet::mechanism
