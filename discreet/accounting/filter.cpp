#include "discreet/accounting/filter.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "discreet/accounting/renyi/rdp_conversion.h"
#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {

using numerics::log;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double add_rounded_up(double a, double b) noexcept {
  const double sum = a + b;
  const double b_part = sum - a;
  const double lost = (a - (sum - b_part)) + (b - b_part);
  return lost > 0 ? std::nextafter(sum, kInfinity) : sum;
}

void require_target(const char* op, double epsilon, double delta) {
  if (!(epsilon > 0 && std::isfinite(epsilon))) {
    invalid_config(op, "epsilon is {}; it must be finite and positive", epsilon);
  }
  if (!(delta > 0 && delta < 1)) {
    invalid_config(op, "delta is {}; it must be in (0, 1)", delta);
  }
}

void require_positive(const char* op, const char* name, double value) {
  if (!(value > 0 && std::isfinite(value))) {
    invalid_config(op, "{} is {}; it must be finite and positive", name, value);
  }
}

void require_spend(const char* op, double spend, bool finite) {
  if (!(spend >= 0) || (finite && !std::isfinite(spend))) {
    invalid_input(op, "the spend is {}; it must not be negative", spend);
  }
}

// K = rho a (a - 1).
LogMoment zcdp_moment(double rho, double order) {
  const double value = rho * order * (order - 1);
  return {{value, value * (1 + 0x1p-50)}, rho * (2 * order - 1)};
}

double zcdp_epsilon(double rho, double delta) {
  return minimise_epsilon([rho](double order) { return zcdp_moment(rho, order); }, delta).epsilon;
}

// The largest x in [0, high] with accepts(x), for a predicate that is true below and false above.
template <class Accepts>
double largest(double high, const Accepts& accepts) {
  double low = 0;
  for (int i = 0; i < 200; ++i) {
    const double middle = 0.5 * (low + high);
    if (!(middle > low && middle < high) || high - low < 1e-15 * high) break;
    (accepts(middle) ? low : high) = middle;
  }
  return low;
}

constexpr const char* kExhausted =
    "the step would exceed the filter's budget; release nothing and stop, or use more noise";

}  // namespace

void SumRoundedUp::add(double term) noexcept {
  const double sum = high_ + term;
  if (!std::isfinite(sum)) {
    high_ = kInfinity;
    low_ = 0;
    return;
  }
  const double part = sum - high_;
  const double lost = (high_ - (sum - part)) + (term - part);
  high_ = sum;
  low_ = add_rounded_up(low_, lost);
}

double SumRoundedUp::upper() const noexcept {
  return std::isfinite(high_) ? add_rounded_up(high_, low_) : high_;
}

RdpFilter::RdpFilter(std::span<const double> orders, double epsilon, double delta)
    : orders_(orders.begin(), orders.end()), spent_(orders.size()) {
  require_target("RdpFilter", epsilon, delta);
  if (orders_.empty()) {
    invalid_config("RdpFilter", "there are no orders; expected at least one");
  }
  const double share = delta / static_cast<double>(orders_.size()) * (1 - 0x1p-52);
  bool reachable = false;
  for (const double order : orders_) {
    if (!(order > 1 && std::isfinite(order))) {
      invalid_config("RdpFilter", "the order is {}; it must be finite and above 1", order);
    }
    // epsilon_at_order >= r - log(1 + 1/c) - log(1 + c)/c + log(1/delta)/c, so B is below this.
    const double c = order - 1;
    const double most = epsilon + 1 / c + 2;
    const double budget = largest(most, [&](double r) {
      return epsilon_at_order(order, r * c * (1 + 0x1p-52), share) <= epsilon;
    });
    // Below delta^2 only the bound by total variation applies; such a budget admits no useful step.
    budgets_.push_back(budget > 2 * share * share ? budget : 0);
    reachable = reachable || budgets_.back() > 0;
  }
  if (!reachable) {
    invalid_config("RdpFilter",
                   "none of the orders can reach epsilon {} at delta {}; use larger orders",
                   epsilon, delta);
  }
}

void RdpFilter::check(std::span<const double> divergences) const {
  if (divergences.size() != orders_.size()) {
    invalid_input("RdpFilter", "found {} divergences for {} orders; expected one for each order",
                  divergences.size(), orders_.size());
  }
  for (const double r : divergences) require_spend("RdpFilter", r, false);
}

bool RdpFilter::admits(std::span<const double> divergences) const {
  check(divergences);
  for (std::size_t i = 0; i < orders_.size(); ++i) {
    SumRoundedUp next = spent_[i];
    next.add(divergences[i]);
    if (budgets_[i] > 0 && next.upper() <= budgets_[i]) return true;
  }
  return false;
}

void RdpFilter::spend(std::span<const double> divergences) {
  if (!admits(divergences)) {
    budget_exceeded("RdpFilter", "{}", kExhausted);
  }
  for (std::size_t i = 0; i < orders_.size(); ++i) spent_[i].add(divergences[i]);
}

ZcdpFilter::ZcdpFilter(double budget) : budget_(budget) {
  require_positive("ZcdpFilter", "the budget", budget);
}

ZcdpFilter ZcdpFilter::for_target(double epsilon, double delta) {
  require_target("ZcdpFilter", epsilon, delta);
  // rho <= epsilon: no conversion gives less than rho for small delta; delta near 1 needs a larger
  // range.
  return ZcdpFilter(largest(
      4 * epsilon + 8, [&](double rho) { return rho > 0 && zcdp_epsilon(rho, delta) <= epsilon; }));
}

bool ZcdpFilter::admits(double rho) const {
  require_spend("ZcdpFilter", rho, true);
  SumRoundedUp next = spent_;
  next.add(rho);
  return next.upper() <= budget_;
}

void ZcdpFilter::spend(double rho) {
  if (!admits(rho)) budget_exceeded("ZcdpFilter", "{}", kExhausted);
  spent_.add(rho);
}

double ZcdpFilter::epsilon(double delta) const {
  require_target("ZcdpFilter", 1, delta);
  return zcdp_epsilon(budget_, delta);
}

IndividualFilters::IndividualFilters(std::size_t records, double budget)
    : spent_(records, 0.0), budget_(budget) {
  require_positive("IndividualFilters", "the budget", budget);
}

IndividualFilters::IndividualFilters(std::vector<double> spent, double budget)
    : spent_(std::move(spent)), budget_(budget) {
  require_positive("IndividualFilters", "the budget", budget);
  for (const double s : spent_) {
    if (!(s >= 0 && s <= budget_)) {
      malformed("IndividualFilters", "a saved spend is {}; it must be in [0, {}]", s, budget_);
    }
  }
}

namespace {

// (a + b)(1 + 2^-51), rounded, is at least a + b: (1 - u)^2 (1 + 4u) > 1. No branch, so the loop
// vectorises; 10^6 steps cost 10^-9 of the budget.
inline double raised_sum(double a, double b) noexcept { return (a + b) * (1 + 0x1p-51); }

bool all_valid(std::span<const double> spends) noexcept {
  bool good = true;
  for (const double s : spends) good &= s >= 0;
  return good;
}

void require_shape(std::size_t expected, std::span<const double> spends,
                   std::span<const std::uint8_t> active) {
  if (spends.size() != expected || active.size() != expected) {
    invalid_input("IndividualFilters",
                  "found {} spends and {} flags for {} records; expected one of each per record",
                  spends.size(), active.size(), expected);
  }
  if (!all_valid(spends)) {
    invalid_input("IndividualFilters",
                  "a spend is negative or NaN; spends are divergences and never negative");
  }
}

}  // namespace

std::size_t IndividualFilters::update(std::span<const double> spends,
                                      std::span<std::uint8_t> active) {
  require_shape(spent_.size(), spends, active);
  std::size_t count = 0;
  double* const spent = spent_.data();
  const double budget = budget_;
  for (std::size_t i = 0; i < spends.size(); ++i) {
    const double next = raised_sum(spent[i], spends[i]);
    const bool fits = next <= budget;
    spent[i] = fits ? next : spent[i];
    active[i] = fits;
    count += fits;
  }
  return count;
}

std::size_t IndividualFilters::update(std::span<const std::uint64_t> records,
                                      std::span<const double> spends,
                                      std::span<std::uint8_t> active) {
  require_shape(records.size(), spends, active);
  std::vector<std::uint64_t> sorted(records.begin(), records.end());
  std::sort(sorted.begin(), sorted.end());
  if (!sorted.empty() && sorted.back() >= spent_.size()) {
    invalid_input("IndividualFilters", "record {} does not exist; there are {} records",
                  sorted.back(), spent_.size());
  }
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    invalid_input("IndividualFilters",
                  "a record occurs twice in the batch; add its spends and give it once");
  }
  std::size_t count = 0;
  for (std::size_t k = 0; k < records.size(); ++k) {
    double& spent = spent_[records[k]];
    const double next = raised_sum(spent, spends[k]);
    active[k] = next <= budget_;
    if (active[k] != 0) spent = next;
    count += active[k];
  }
  return count;
}

ZcdpOdometer::ZcdpOdometer(double first_budget, double delta)
    : first_budget_(first_budget), delta_(delta) {
  require_positive("ZcdpOdometer", "the first budget", first_budget);
  require_target("ZcdpOdometer", 1, delta);
}

void ZcdpOdometer::spend(double rho) {
  require_spend("ZcdpOdometer", rho, true);
  spent_.add(rho);
}

int ZcdpOdometer::phase() const noexcept {
  int phase = 1;
  for (double budget = first_budget_; budget < spent_.upper() && std::isfinite(budget);
       budget *= 2) {
    ++phase;
  }
  return phase;
}

double ZcdpOdometer::epsilon() const {
  if (spent_.upper() == 0) return 0;
  const int f = phase();
  const double budget = std::ldexp(first_budget_, f - 1);
  if (!std::isfinite(budget)) return kInfinity;
  // log(1/delta_f), as a sum: delta_f itself may underflow.
  constexpr double kLogPiSquaredOverSix = 0.49770030247075;  // rounded up
  const double nats = kLogPiSquaredOverSix + 2 * log(static_cast<double>(f)) - log(delta_);
  return (budget + 2 * std::sqrt(budget) * std::sqrt(nats)) * (1 + 0x1p-49);
}

}  // namespace discreet::accounting
