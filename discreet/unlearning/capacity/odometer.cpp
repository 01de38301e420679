#include "discreet/unlearning/capacity/odometer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "discreet/accounting/renyi/rdp_conversion.h"
#include "discreet/accounting/tradeoff/gdp.h"
#include "discreet/numerics/elementary.h"
#include "discreet/numerics/rounding.h"
#include "discreet/unlearning/require_impl.h"

namespace discreet::unlearning {
namespace {

constexpr const char* kOp = "PrivacyOdometer";

OdometerOptions checked(OdometerOptions o) {
  require_positive(kOp, "eps_total", o.eps_total);
  require_probability(kOp, "delta_total", o.delta_total);
  require_positive(kOp, "lambda", o.lambda);
  require_probability(kOp, "delta_B", o.delta_B);
  require_positive(kOp, "gamma_learn", o.gamma_learn);
  require_positive(kOp, "gamma_priv", o.gamma_priv);
  if (o.T < 1 || o.T > kCountLimit) {
    invalid_input(kOp, "T is {}; it must be in 1 to 2^63 - 1", o.T);
  }
  if (!(o.reserve >= 0 && o.reserve < 1)) {
    refuse(kOp, "reserve", o.reserve, "a number in [0, 1)");
  }
  if (o.accounting == Accounting::kSpecification) return o;
  if (o.guarantee == Guarantee::kNotCertified) {
    invalid_input(kOp,
                  "a certified accounting needs a guarantee: per-record, set-level or transcript");
  }
  if (o.guarantee == Guarantee::kSetLevel && o.reserve > 0) {
    invalid_input(kOp,
                  "releases and drift tests are accounted for single records; a set-level odometer "
                  "cannot have a reserve");
  }
  if (o.accounting == Accounting::kGdp &&
      (o.guarantee == Guarantee::kTranscript || o.reserve > 0)) {
    invalid_input(kOp,
                  "gdp needs shares fixed in advance, but releases are chosen during the run; use "
                  "zcdp or rdp for a transcript or a reserve");
  }
  require_valid(o.enforced);
  if (o.enforced.lambda != o.lambda) {
    refuse(kOp, "the enforced lambda", o.enforced.lambda, "the same lambda in both places");
  }
  return o;
}

double total_of(const OdometerOptions& o) {
  if (o.accounting == Accounting::kSpecification) return 1;
  return rho_of(o.accounting, o.eps_total, o.delta_total);
}

}  // namespace

std::string_view to_string(Accounting accounting) noexcept {
  constexpr std::array<std::string_view, 4> names = {"specification", "zcdp", "rdp", "gdp"};
  return names[static_cast<std::size_t>(accounting)];
}

std::string_view to_string(Guarantee guarantee) noexcept {
  constexpr std::array<std::string_view, 4> names = {"not certified", "per-record", "set-level",
                                                     "transcript"};
  return names[static_cast<std::size_t>(guarantee)];
}

double eps_of(Accounting accounting, double rho, double delta) {
  require_not_negative(kOp, "rho", rho);
  require_probability(kOp, "delta", delta);
  if (rho == 0) return 0;
  switch (accounting) {
    case Accounting::kZcdp:
      return numerics::round_up(rho + 2 * std::sqrt(rho * -numerics::log(delta)), 8);
    case Accounting::kRdp: {
      // Order a has divergence a rho, so the log-moment (a - 1) a rho.
      const auto moments = [rho](double a) {
        const double k = numerics::round_up(a * (a - 1) * rho, 3);
        return accounting::LogMoment{{0, k}, (2 * a - 1) * rho};
      };
      return accounting::minimise_epsilon(moments, delta).epsilon;
    }
    case Accounting::kGdp:
      return accounting::gaussian_epsilon(numerics::round_up(std::sqrt(2 * rho), 1), delta).upper;
    case Accounting::kSpecification: break;
  }
  invalid_input(kOp, "the specification's accounting has no rho; choose zcdp, rdp or gdp");
}

double rho_of(Accounting accounting, double eps, double delta) {
  require_positive(kOp, "eps", eps);
  require_probability(kOp, "delta", delta);
  const auto fits = [&](double rho) { return eps_of(accounting, rho, delta) <= eps; };
  if (fits(RhoBudget::kLimit)) return RhoBudget::kLimit;
  // Bisection down to a unit of the budget, which rounds down anyway. Only values that were seen
  // to fit are returned, so nothing is assumed of eps_of between.
  double low = 0, high = RhoBudget::kLimit;
  while (high - low > RhoBudget::kUnit / 2) {
    const double middle = low + (high - low) / 2;
    if (!(middle > low && middle < high))
      break;  // neighbours: of a large rho they are further apart
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

PrivacyOdometer::PrivacyOdometer(OdometerOptions options)
    : options_(checked(options)),
      budget_(total_of(options_) * (1 - options_.reserve)),
      reserve_(total_of(options_) - budget_.total()) {
  if (options_.reserve == 0) reserve_ = RhoBudget(0);
}

Guarantee PrivacyOdometer::guarantee() const noexcept {
  return certified() ? options_.guarantee : Guarantee::kNotCertified;
}

void PrivacyOdometer::require_warm() const {
  if (warming_) {
    invalid_input(kOp,
                  "the model has seen fewer inserts than N*; call insert until ready_to_predict, "
                  "then finalize the odometer");
  }
}

void PrivacyOdometer::finalize_with(const CalibrationStats& stats, std::uint64_t T_estimate,
                                    std::uint64_t deletes_from) {
  require_warm();
  if (finalized_) {
    invalid_input(kOp, "already finalized; call recalibrate, which uses the remaining budget");
  }
  PrivacyOdometer next = *this;
  next.solve(stats, T_estimate, deletes_from);
  *this = std::move(next);
}

void PrivacyOdometer::recalibrate(const CalibrationStats& stats, std::uint64_t T_estimate,
                                  std::uint64_t deletes_from) {
  require_warm();
  if (!finalized_) {
    invalid_input(kOp, "not finalized yet; call finalize_with first");
  }
  if (options_.accounting == Accounting::kGdp && deletes_ > 0) {
    invalid_input(kOp,
                  "gdp fixes its shares in advance and cannot recalibrate after a delete; use zcdp "
                  "or rdp");
  }
  PrivacyOdometer next = *this;
  next.solve(stats, T_estimate, deletes_from);
  *this = std::move(next);
}

void PrivacyOdometer::solve(const CalibrationStats& stats, std::uint64_t T,
                            std::uint64_t deletes_from) {
  OdometerOptions o = options_;
  o.T = T;
  o = checked(o);
  warnings_.clear();
  if (!certified()) {
    // What is left of the fraction; at the start it is 1 and the numbers are the literal ones.
    const double left = budget_.left();
    if (left > 0) {
      const auto found = literal_capacity(
          stats.constants,
          {o.eps_total * left, o.delta_total * left, o.lambda, o.delta_B, T, o.gamma_priv});
      m_ = found.m;
      share_ = budget_.share(found.capacity);
      capacity_ = share_ > 0 ? found.capacity : 0;
      eps_step_ = found.eps_step;
      delta_step_ = found.delta_step;
      sigma_step_ = found.sigma_step;
    } else {
      // Nothing is left: the literal formula takes no total of 0.
      literal_capacity(stats.constants,
                       {o.eps_total, o.delta_total, o.lambda, o.delta_B, T, o.gamma_priv});
      m_ = capacity_ = 0;
      share_ = 0;
    }
  } else {
    const bool shared = o.guarantee == Guarantee::kSetLevel;
    const double rho = budget_.left();
    const StreamCapacity found = stream_capacity(o.enforced, rho, T, deletes_from, o.gamma_priv);
    m_ = shared ? found.set_level : found.per_record;
    // Deletes made before count against the regret of the same stream.
    capacity_ = shared ? m_ : m_ - std::min(m_, deletes_);
    share_ = shared ? budget_.share(std::max<std::uint64_t>(1, m_)) : rho;
    if (!(share_ > 0)) capacity_ = 0;
    const double s =
        static_cast<double>(deletes_from) + static_cast<double>(step_offset(o.enforced));
    const double shift = o.enforced.G_f / (o.enforced.lambda * s);
    eps_step_ = eps_of(o.accounting, share_, o.delta_total);
    delta_step_ = o.delta_total;
    sigma_step_ = capacity_ > 0 ? shift / std::sqrt(2 * share_) : 0;
  }
  if (capacity_ == 1) {
    warnings_.push_back(
        fmt::format("the regret budget gamma_priv = {} over T = {} events allows m = {} deletes",
                    o.gamma_priv, T, m_));
    warnings_.emplace_back("Capacity is 1; next delete forces retrain");
  } else if (capacity_ == 0) {
    warnings_.push_back(
        fmt::format("the remaining budgets (gamma_priv = {}, T = {}) allow no delete; retrain "
                    "without the record instead",
                    o.gamma_priv, T));
  }
  options_ = o;
  used_ = 0;
  finalized_ = true;
}

void PrivacyOdometer::spend(std::uint64_t deletes) {
  if (!ready_to_delete() || deletes > remaining()) {
    budget_exceeded(kOp, "Odometer not finalized or capacity depleted.");
  }
  if (deletes < 1) {
    invalid_input(kOp, "the number of deletions is 0; it must be at least 1");
  }
  if (!certified() || options_.guarantee == Guarantee::kSetLevel) {
    budget_.charge(share_ * static_cast<double>(deletes));
  }
  used_ += deletes;
  deletes_ += deletes;
}

double PrivacyOdometer::noise_scale() const {
  if (certified()) {
    invalid_input(kOp, "the noise of a certified delete depends on its sensitivity; pass it");
  }
  return sigma_step_;
}

double PrivacyOdometer::noise_scale(double sensitivity) const {
  require_not_negative(kOp, "sensitivity", sensitivity);
  if (!certified() || !(share_ > 0)) {
    invalid_input(kOp,
                  "no certified share is set; finalize a certified odometer with capacity left");
  }
  // Below the true root, so that the quotient is above.
  const double root = numerics::round_down(std::sqrt(2 * share_), 1);
  return numerics::round_up(sensitivity / root, 1);
}

void PrivacyOdometer::charge_reserve(double rho) {
  if (!certified() || options_.guarantee == Guarantee::kSetLevel) {
    invalid_input(kOp, "only a per-record or transcript odometer has a reserve");
  }
  reserve_.charge(rho);
}

std::string_view PrivacyOdometer::status() const noexcept {
  if (!finalized_) return "not finalized";
  if (capacity_ == 0) return "infeasible";
  if (capacity_ == 1) return "degenerate";
  return remaining() == 0 ? "exhausted" : "ready";
}

double PrivacyOdometer::eps_spent() const {
  if (!certified()) return options_.eps_total * budget_.spent();
  double rho = budget_.spent();
  if (options_.guarantee != Guarantee::kSetLevel) {
    rho = (deletes_ > 0 ? budget_.total() : 0) + reserve_.spent();
  }
  return eps_of(options_.accounting, rho, options_.delta_total);
}

}  // namespace discreet::unlearning
