#include "discreet/unlearning/capacity/rho_budget.h"

#include <algorithm>
#include <cmath>

#include "discreet/base/error.h"

namespace discreet::unlearning {
namespace {

constexpr const char* kOp = "RhoBudget";

// Dividing by a power of two is exact, so this rounds up.
double units_of(double amount) {
  if (!(amount >= 0)) {
    invalid_input(kOp, "the charge is {}; it must not be negative", amount);
  }
  return std::ceil(amount / RhoBudget::kUnit);
}

}  // namespace

RhoBudget::RhoBudget(double total) {
  if (!(total >= 0)) {
    invalid_input(kOp, "the total is {}; it must not be negative", total);
  }
  total_ = static_cast<std::uint64_t>(std::floor(std::min(total, kLimit) / kUnit));
}

bool RhoBudget::admits(double amount) const {
  return units_of(amount) <= static_cast<double>(total_ - spent_);
}

void RhoBudget::charge(double amount) {
  if (!admits(amount)) {
    budget_exceeded(kOp,
                    "{} was requested from a budget with {} left; retrain without the deleted "
                    "records to start a new one",
                    amount, left());
  }
  spent_ += static_cast<std::uint64_t>(units_of(amount));
}

double RhoBudget::share(std::uint64_t parts) const {
  return static_cast<double>((total_ - spent_) / std::max<std::uint64_t>(1, parts)) * kUnit;
}

}  // namespace discreet::unlearning
