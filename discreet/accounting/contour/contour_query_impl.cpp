#include "discreet/accounting/contour/contour_query_impl.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "discreet/accounting/contour/contour_certificate_impl.h"
#include "discreet/accounting/contour/contour_plan_impl.h"
#include "discreet/accounting/contour/contour_rounding_impl.h"
#include "discreet/base/error.h"
#include "discreet/numerics/strict_arithmetic.h"

namespace discreet::accounting::contour {
namespace {

constexpr int kRounds = 5;
// Nodes times terms, in the mean over all steps, after which no further round is started.
constexpr double kEnoughWork = 2e6;
// If wider than this, relative to delta, another accountant is as good.
constexpr double kWidest = 1e-2;

[[noreturn]] void invalid_value(const char* name, double value, const char* remedy) {
  invalid_config("contour", "{} is {}; {}", name, value, remedy);
}

// Only steps that are new to the totals must be checked: the others have passed before.
template <class Steps>
std::span<const Steps> fresh(const std::vector<Steps>& steps, const Totals::Part& part) {
  return std::span(steps).subspan(part.begin, part.new_end - part.begin);
}

void check(const Composition& composition, const Totals::Difference& difference,
           double relative_width) {
  numerics::require_round_to_nearest();
  if (!(relative_width > 0 && relative_width < 1)) {
    invalid_value("relative_width", relative_width, "it must be in (0, 1)");
  }
  if (composition.gaussians.empty() && composition.explicits.empty()) {
    invalid_config("contour", "the composition is empty; give at least one step");
  }
  for (const GaussianSteps& steps : fresh(composition.gaussians, difference.gaussians)) {
    if (!(steps.rate > 0 && steps.rate <= 1))
      invalid_value("rate", steps.rate, "it must be in (0, 1]");
    if (!(steps.sigma > 0 && std::isfinite(steps.sigma))) {
      invalid_value("sigma", steps.sigma, "it must be positive and finite");
    }
    if (steps.count == 0)
      invalid_value("count", 0, "it must be at least 1; omit steps that are not taken");
  }
  for (const ExplicitSteps& steps : fresh(composition.explicits, difference.explicits)) {
    if (!(steps.epsilon >= 0 && std::isfinite(steps.epsilon))) {
      invalid_value("explicit epsilon", steps.epsilon, "it must be finite and not negative");
    }
    if (!(steps.delta >= 0 && steps.delta < 1)) {
      invalid_value("explicit delta", steps.delta, "it must be in [0, 1)");
    }
    if (steps.count == 0)
      invalid_value("count", 0, "it must be at least 1; omit steps that are not taken");
  }
}

bool all_supported(const Composition& composition, const Totals::Difference& difference) {
  const auto gaussians = fresh(composition.gaussians, difference.gaussians);
  const auto explicits = fresh(composition.explicits, difference.explicits);
  return !composition.gaussians.empty() &&
         std::all_of(gaussians.begin(), gaussians.end(), supported) &&
         std::all_of(explicits.begin(), explicits.end(), [](const ExplicitSteps& s) {
           return s.epsilon <= 1000 && s.count <= (1ull << 53);
         });
}

// Explicit steps fail outright with probability p = 1 - prod (1 - delta)^count; given that they do
// not, delta(epsilon) is that of the remaining loss: delta = p + (1-p) delta'.
struct Failure {
  double probability = 0;
  double error = 0;  // of `probability`, absolute
  explicit Failure(const Composition& composition) {
    double log_survival = 0;
    for (const ExplicitSteps& steps : composition.explicits) {
      log_survival += static_cast<double>(steps.count) * numerics::log1p(-steps.delta);
    }
    if (log_survival == 0) return;
    probability = -numerics::expm1(log_survival);
    // 4u per factor, u per addition, and d(1 - e^s) = e^s ds <= |s e^s| relative to ds/s.
    error = 2 * kUnit * (6 + static_cast<double>(composition.explicits.size())) *
            std::min(-log_survival * numerics::exp(log_survival) + probability, 1.0);
  }
};

using Value = Certificate::Value;

// Moves outwards from an estimate until the certificate accepts; then the value is a bound.
template <class Accept>
std::optional<double> step_out(const Certificate& certificate, double epsilon, double gap,
                               double direction, Accept&& accept) {
  double stride = std::max(1.05 * gap, 4 * kUnit * (1 + std::abs(epsilon)));
  for (int k = 0; k < 12; ++k) {
    const double candidate = epsilon + direction * stride;
    const Value value = certificate.at(candidate);
    if (accept(value)) return candidate;
    stride *= 1.6;
  }
  return std::nullopt;
}

// Root of estimate(epsilon) = 1 by Newton's method on the logarithm.
double solve(const Certificate& certificate, double epsilon) {
  for (int k = 0; k < 12; ++k) {
    const Value value = certificate.at(epsilon);
    const double excess = numerics::log(value.estimate);
    if (!(value.slope < 0) || !std::isfinite(excess)) break;
    const double move = std::clamp(-excess / value.slope, -0.5 * (1 + std::abs(epsilon)),
                                   0.5 * (1 + std::abs(epsilon)));
    epsilon += move;
    if (std::abs(move * value.slope) < 1e-13) break;
  }
  return epsilon;
}

bool good_enough(const Value& value, double relative_width) {
  const double width = value.upper - value.lower;
  return width <= 6 * relative_width * value.estimate + 3 * value.round_off &&
         width <= kWidest * value.estimate;
}

double mean_nodes(const std::vector<Fixed>& sums, const Totals& totals) {
  return sums[kNodes].value() / std::max(1.0, totals.subsampled_count());
}

// Whether Chernoff's bound alone shows that delta(epsilon) is at most (1 - slack) exp(log_delta);
// the bound, relative to exp(log_delta), and the contour that gave it.
struct Bound {
  Contour contour;
  double upper;
};
std::optional<Bound> bound_from_mass(Totals& totals, double epsilon, double log_delta, double slack,
                                     const Spoil& spoil) {
  const auto contour = contour_for_bound(totals, epsilon, log_delta);
  const auto* sums = contour ? totals.contributions(*contour, spoil) : nullptr;
  if (!sums) return std::nullopt;
  const Certificate certificate(*contour, *sums, totals.distinct(), log_delta);
  const double upper = certificate.chernoff(epsilon);
  if (!(upper <= 1 - slack)) return std::nullopt;
  return Bound{*contour, upper};
}

// delta'(epsilon) of the losses that do not fail, for a given delta of all.
struct Conditional {
  double delta;      // not positive: failing alone is more than, or nearly, what is allowed
  double log_delta;  // its logarithm
  double slack;      // delta / exp(log_delta) is within 1 +- slack of the exact one

  Conditional(const Failure& failure, double whole) {
    const double rest = whole - failure.probability;
    delta = rest > 1e-6 * whole ? rest / (1 - failure.probability) : 0;
    log_delta = numerics::log(delta);
    slack = up(2 * failure.error / rest + (failure.probability > 0 ? 8 * kUnit * whole / rest : 0) +
               4 * kUnit * (1 + std::abs(log_delta)));
  }
};

// epsilon(delta) between the nearest values at which the certificate is sure; empty if it is not
// within 12 steps.
std::optional<Interval> bracket(const Certificate& certificate, double epsilon, double slack) {
  const Value value = certificate.at(epsilon);
  const double above = (value.upper - 1 + slack) / -value.slope;
  const double below = (1 - value.lower + slack) / -value.slope;
  const auto upper = step_out(certificate, epsilon, above, 1,
                              [&](const Value& v) { return v.upper <= 1 - slack; });
  const auto lower = step_out(certificate, epsilon, below, -1,
                              [&](const Value& v) { return v.lower >= 1 + slack; });
  if (!upper || !(lower || epsilon < 2 * below)) return std::nullopt;
  return Interval{std::max(0.0, lower.value_or(0)), std::max(0.0, *upper)};
}

}  // namespace

bool query_holds(Totals& totals, const Composition& composition, double epsilon, double delta) {
  if (!(delta > 0 && delta < 1)) invalid_value("delta", delta, "it must be in (0, 1)");
  if (!(epsilon >= 0 && std::isfinite(epsilon))) {
    invalid_value("epsilon", epsilon, "it must be finite and not negative");
  }
  const auto difference = totals.difference(composition);
  check(composition, difference, 0.5);
  if (!all_supported(composition, difference) || delta < 1e-250) return false;
  const Conditional conditional(Failure(composition), delta);
  if (!(conditional.delta > 0)) return false;
  totals.move_to(composition, difference);
  return bound_from_mass(totals, epsilon, conditional.log_delta, conditional.slack, {}).has_value();
}

std::optional<ContourResult> query_epsilon(Totals& totals, const Composition& composition,
                                           double delta, double relative_width,
                                           const Spoil& spoil) {
  if (!(delta > 0 && delta < 1)) invalid_value("delta", delta, "it must be in (0, 1)");
  const auto difference = totals.difference(composition);
  check(composition, difference, relative_width);
  if (!all_supported(composition, difference) || delta < 1e-250) return std::nullopt;
  const Conditional conditional(Failure(composition), delta);
  if (!(conditional.delta > 0)) return std::nullopt;
  const double log_delta = conditional.log_delta;
  const double slack = conditional.slack;
  relative_width = std::clamp(relative_width, 1e-13, 0.1);
  totals.move_to(composition, difference);

  auto point = estimate_from_delta(totals, log_delta, relative_width);
  if (!point) return std::nullopt;
  if (point->epsilon <= 0) {
    if (const auto bound = bound_from_mass(totals, 0, log_delta, slack, spoil)) {
      return ContourResult{{0, 0},
                           bound->upper * conditional.delta,
                           bound->contour.c(),
                           bound->contour.terms(),
                           totals.nodes()};
    }
  }
  double work = 0;
  for (int round = 0; round < kRounds && work < kEnoughWork; ++round) {
    auto contour = choose_contour(totals, *point, relative_width, round / 2);
    if (!contour) return std::nullopt;
    contour->spacing += spoil.spacing;
    contour->cut += spoil.cut;
    const auto* sums = totals.contributions(*contour, spoil);
    if (!sums) return std::nullopt;
    work += mean_nodes(*sums, totals) * static_cast<double>(contour->terms());
    const Certificate certificate(*contour, *sums, totals.distinct(), log_delta);
    const double epsilon = solve(certificate, std::max(point->epsilon, 0.0));
    ContourResult result{{0, 0}, 0, contour->c(), contour->terms(), totals.nodes()};
    if (!std::isfinite(epsilon)) return std::nullopt;
    if (epsilon < 0) {
      // The answer is 0 if delta(0) <= delta; a contour made for epsilon = 0 decides this.
      const auto at_zero = query_delta(totals, composition, 0, 1e-3, spoil);
      if (!at_zero) return std::nullopt;
      if (at_zero->value.upper <= delta) {
        result.delta_error = at_zero->delta_error;
        return result;
      }
    }
    point->epsilon = epsilon;
    const Value value = certificate.at(epsilon);
    if (!good_enough(value, relative_width) && !spoil.any()) continue;
    const auto interval = bracket(certificate, epsilon, slack);
    if (!interval) continue;
    const double width = (interval->upper - interval->lower) * -value.slope;
    if (!(width < 4 * kWidest) && !spoil.any()) continue;
    result.value = *interval;
    result.delta_error = 0.5 * (value.upper - value.lower) * conditional.delta;
    return result;
  }
  return std::nullopt;
}

std::optional<ContourResult> query_delta(Totals& totals, const Composition& composition,
                                         double epsilon, double relative_width,
                                         const Spoil& spoil) {
  if (!(epsilon >= 0 && std::isfinite(epsilon))) {
    invalid_value("epsilon", epsilon, "it must be finite and not negative");
  }
  const auto difference = totals.difference(composition);
  check(composition, difference, relative_width);
  if (!all_supported(composition, difference)) return std::nullopt;
  const Failure failure(composition);
  relative_width = std::clamp(relative_width, 1e-13, 0.1);
  totals.move_to(composition, difference);

  auto point = estimate_from_epsilon(totals, epsilon, relative_width);
  double work = 0;
  for (int round = 0; point && round < kRounds && work < kEnoughWork; ++round) {
    auto contour = choose_contour(totals, *point, relative_width, round / 2);
    if (!contour) return std::nullopt;
    contour->spacing += spoil.spacing;
    contour->cut += spoil.cut;
    const auto* sums = totals.contributions(*contour, spoil);
    if (!sums) return std::nullopt;
    work += mean_nodes(*sums, totals) * static_cast<double>(contour->terms());
    const Certificate certificate(*contour, *sums, totals.distinct(), point->log_delta);
    const Value value = certificate.at(epsilon);
    const double moved = numerics::log(value.estimate);
    if (!good_enough(value, relative_width) || std::abs(moved) > 3) {
      if (std::isfinite(moved)) point->log_delta = std::min(-1e-9, point->log_delta + moved);
      continue;
    }
    // exp(log_delta), from both sides.
    const double scale_error = 4 * kUnit * (2 + std::abs(point->log_delta));
    const double scale = numerics::exp(point->log_delta);
    const double survival = 1 - failure.probability;
    const double low = std::max(0.0, value.lower) * scale * (1 - scale_error);
    const double high = value.upper * scale * (1 + scale_error);
    ContourResult result{{0, 0}, 0, contour->c(), contour->terms(), totals.nodes()};
    result.value.lower =
        std::max(0.0, (failure.probability - failure.error + survival * low) * (1 - 8 * kUnit) -
                          failure.error * low);
    result.value.upper =
        std::min(1.0, (failure.probability + failure.error + survival * high) * (1 + 8 * kUnit) +
                          failure.error * high);
    result.delta_error = 0.5 * (result.value.upper - result.value.lower);
    return result;
  }
  return std::nullopt;
}

}  // namespace discreet::accounting::contour
