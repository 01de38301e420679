#include "discreet/accounting/budget.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "discreet/base/error.h"

namespace discreet::accounting {

namespace {

void require_within(const Accountant& accountant, double epsilon, double delta) {
  const double upper = accountant.epsilon(delta).epsilon.upper;
  if (!(upper <= epsilon)) {
    budget_exceeded("PrivacyBudget",
                    "epsilon would be {} at delta {}, above the target {}; release nothing and "
                    "stop, or plan more noise or fewer steps",
                    upper, delta, epsilon);
  }
}

}  // namespace

PrivacyBudget::PrivacyBudget(std::unique_ptr<Accountant> accountant, double epsilon, double delta,
                             Granularity granularity)
    : accountant_(std::move(accountant)),
      epsilon_(epsilon),
      delta_(delta),
      granularity_(granularity) {
  if (!(epsilon > 0 && std::isfinite(epsilon))) {
    invalid_config("PrivacyBudget", "the target epsilon is {}; it must be finite and positive",
                   epsilon);
  }
  require_within(*accountant_, epsilon_, delta_);
}

void PrivacyBudget::admit(const std::vector<RepeatedEvent>& events) {
  if (events.size() == 1 &&
      !accountant_->would_exceed(events[0].event, events[0].count, epsilon_, delta_)) {
    accountant_->compose(events[0].event, events[0].count);
    return;
  }
  std::unique_ptr<Accountant> next = accountant_->clone();
  for (const auto& [event, count] : events) next->compose(event, count);
  require_within(*next, epsilon_, delta_);
  accountant_ = std::move(next);
}

void PrivacyBudget::begin_epoch(const std::vector<RepeatedEvent>& steps) {
  if (granularity_ != Granularity::kPerEpoch) {
    invalid_config("PrivacyBudget",
                   "epochs can only be reserved under PER_EPOCH; call step for each step");
  }
  std::vector<RepeatedEvent> reserved = steps;
  admit(steps);
  reserved_ = std::move(reserved);
}

void PrivacyBudget::step(const Event& event) {
  if (granularity_ == Granularity::kPerStep) {
    admit({{event, 1}});
    return;
  }
  for (auto& [kind, left] : reserved_) {
    if (left > 0 && kind == event) {
      --left;
      return;
    }
  }
  budget_exceeded("PrivacyBudget",
                  "{} is not part of the epoch's reservation, or the reservation is used up; start "
                  "an epoch that contains it",
                  describe(event));
}

}  // namespace discreet::accounting
