// What Apply_v3 charges: the event of a step, delta for what samplers leave out, room for the
// rounding of sums.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "discreet/config/config_table.h"
#include "discreet/mechanism/clip/clip_rows.h"
#include "discreet/mechanism/clip/ghost/ghost.h"
#include "discreet/mechanism/noise/projection.h"
#include "discreet/mechanism/step/apply_impl.h"
#include "discreet/numerics/elementary.h"
#include "discreet/numerics/rounding.h"

namespace discreet::mechanism {
namespace {

using numerics::next_down;
using numerics::next_up;

constexpr const char* kOperator = "Apply_v3";

// The maximum share of its bound that a class gives to the rounding of sums; beyond it, sums are
// formed in smaller runs of binary32.
constexpr double kMostTheta = 0x1p-6;

}  // namespace

bool adapts_bounds(const DpConfig& dp) noexcept {
  return dp.clip_strategy == ClipStrategy::kAdaptive || dp.clip_norm_adaptive;
}

std::uint64_t charged_steps(const DpConfig& dp) noexcept {
  return dp.target_steps.value_or(std::uint64_t{1} << 24);
}

double accountable_delta(const DpConfig& dp, const ModelLayout& layout,
                         const std::vector<PriorRelease>& before, std::uint64_t slots, double delta,
                         double epsilon) {
  const std::uint64_t steps = 2 * charged_steps(dp);
  // Counts are Gaussian whatever the family: at most three for each part, and one.
  const bool counts = adapts_bounds(dp) || dp.metrics_release == MetricsRelease::kDp;
  const double tail = next_up(
      sampler_delta(dp.noise_family, layout.private_parameters(), steps * slots, epsilon) +
      sampler_delta(NoiseFamily::kGaussian, counts ? 3 * layout.size() + 1 : 0, steps, epsilon));
  const double both = 1 + numerics::exp(std::min(epsilon, 700.0));
  const double batches = numerics::round_up(static_cast<double>(steps) * 0x1p-144 * both, 4);
  double left = next_down(next_down(delta - tail) - batches);
  for (const PriorRelease& release : before)
    left = next_down(left - sampler_delta(NoiseFamily::kGaussian, release.coordinates, 1, epsilon));
  return left;
}

double charged_delta(const DpConfig& dp, const ModelLayout& layout,
                     const std::vector<PriorRelease>& before, std::uint64_t slots) {
  const double delta =
      accountable_delta(dp, layout, before, slots, dp.target_delta, dp.target_epsilon);
  if (!(delta > 0))
    invalid_config(kOperator,
                   "target_delta {} is below the sampler error of {} steps of noise on {} "
                   "coordinates at target_epsilon {} ({}); use a smaller target_epsilon, fewer "
                   "target_steps, or a discrete noise family",
                   dp.target_delta, 2 * charged_steps(dp), layout.private_parameters(),
                   dp.target_epsilon, dp.target_delta - delta);
  return delta;
}

accounting::EpsilonBound Mechanism::spent(double delta) const {
  const DpConfig& dp = fixed_->dp();
  if (!(delta > 0 && delta < 1))
    invalid_input(kOperator, "delta is {}; it must be in (0, 1)", delta);
  // The charge for what samplers leave out grows with epsilon. It is taken at a bound of the
  // result, which is raised until the result is within it.
  double most = dp.target_epsilon;
  for (int i = 0; i < 64; ++i) {
    const double left =
        accountable_delta(dp, fixed_->layout, fixed_->before, fixed_->noise_slots(), delta, most);
    if (!(left > 0)) break;
    const accounting::EpsilonBound bound = state_->accountant->epsilon(left);
    if (bound.epsilon.upper <= most || std::isinf(bound.epsilon.upper)) return bound;
    most = bound.epsilon.upper * (1 + 0x1p-20);
  }
  invalid_input(kOperator,
                "delta {} is below the sampler error of the noise of {} steps at epsilon {}; use a "
                "larger delta",
                delta, 2 * charged_steps(dp), most);
}

std::size_t charge_rounding(Router& router, const Mechanism::Fixed& fixed) {
  if (fixed.has_grid()) return fixed.binary32_records;
  const DpConfig& dp = fixed.dp();
  if (!dp.clip_ghost && !dp.fused_kernel) {
    if (router.charge(summation_charge(fixed.most_records), kMostTheta))
      return fixed.binary32_records;
  } else {
    ClipOptions options = fixed.clip_options();
    for (;; options.binary32_records /= 2) {
      const double factor =
          sensitivity_factor(fixed.most_records, fixed.most_positions, options, Slots::kFixed);
      if (router.charge(next_up(factor - 1), kMostTheta)) return options.binary32_records;
      if (options.binary32_records == 0) break;
    }
  }
  invalid_config("Router",
                 "the rounding of a sum of {} records with the widest bound exceeds 1/64 of the "
                 "strictest class's bound; make the bounds of classes less unequal or the batches "
                 "smaller, or use a discrete noise family",
                 fixed.most_records);
}

std::optional<accounting::Adaptation> Mechanism::Fixed::counts(std::size_t parts) const {
  std::uint32_t counts = 0;
  if (adapts() && dp().adaptive_accounting == AdaptiveAccounting::kConservative)
    counts += static_cast<std::uint32_t>(2 * parts);
  if (dp().metrics_release == MetricsRelease::kDp) counts += static_cast<std::uint32_t>(parts + 1);
  if (counts == 0) return std::nullopt;
  return accounting::Adaptation{counts, dp().adaptive_noise};
}

accounting::Event Mechanism::Fixed::event(const Allocation& allocation, double sigma) const {
  const std::size_t parts = allocation.plan.partition.parts();
  // Every class of a routed run has at least this multiplier, rounding included.
  if (router && !has_grid() && !is_laplace())
    return {accounting::Gaussian{sigma}, accounted_sampling, dp().adjacency};
  accounting::GaussianGroups groups = accounted_groups(allocation, sigma, counts(parts));
  const bool one_bound = parts == 1 && !groups.adaptation;
  const auto require_one_bound = [&] {
    if (!one_bound)
      invalid_config(kOperator,
                     "{} noise can be accounted only for one clip bound, without additional "
                     "counts; use a flat clipping.strategy, or {}",
                     spelling(dp().noise_family), has_grid() ? "rounded_gaussian" : "gaussian");
  };
  if (is_laplace()) {
    require_one_bound();
    const double inflation = next_up(1 + summation_charge(most_records));
    const double multiplier =
        router ? sigma : next_down(groups.groups[0].noise_multiplier / inflation);
    return {accounting::Laplace{accounting::laplace_scale(multiplier)}, accounted_sampling,
            dp().adjacency};
  }
  if (!has_grid()) {
    const double inflation =
        dp().clip_ghost || dp().fused_kernel
            ? sensitivity_factor(most_records, most_positions, clip_options(), Slots::kShifted)
            : next_up(1 + summation_charge(most_records));
    for (accounting::Group& group : groups.groups) {
      group.noise_multiplier = next_down(group.noise_multiplier / inflation);
      // Without a flat bound the unit of C_g means nothing; one that adapts must not make the same
      // step another event.
      if (!groups.flat_clip) group.clip = 1;
    }
    return {groups, accounted_sampling, dp().adjacency};
  }
  for (const double clip : allocation.plan.clip)
    if (static_cast<double>(most_records) * (clip / *dp().noise_discrete) > 0x1p53)
      invalid_config(kOperator,
                     "noise.discrete is {}: the sum of up to {} records of norm {} is not exact in "
                     "such fine steps; use a coarser grid",
                     *dp().noise_discrete, most_records, clip);
  const bool rounded = dp().noise_family == NoiseFamily::kRoundedGaussian;
  if (!rounded) require_one_bound();
  const double multiplier = router    ? sigma
                            : rounded ? accounting::effective_noise_multiplier(groups)
                                      : groups.groups[0].noise_multiplier;
  return {discrete_mechanism(multiplier, allocation.plan.clip[0]), accounted_sampling,
          dp().adjacency};
}

accounting::Mechanism Mechanism::Fixed::discrete_mechanism(double sigma, double bound) const {
  if (dp().noise_family == NoiseFamily::kRoundedGaussian) return accounting::RoundedGaussian{sigma};
  const double clip = next_up(bound / *dp().noise_discrete);  // in grid steps
  if (dp().noise_family == NoiseFamily::kDiscreteGaussian)
    return accounting::DiscreteGaussian{sigma, clip};
  const double square = next_up(clip * clip);
  const double dimension = static_cast<double>(layout.private_parameters());
  const double stddev = next_down(sigma * next_down(bound / *dp().noise_discrete));
  // A vector of whole numbers has |x| <= x^2, hence L1 norm at most the squared L2 norm.
  return accounting::Skellam{next_down(stddev * stddev),
                             std::min(square, next_up(next_up(std::sqrt(dimension)) * clip)), clip,
                             clip};
}

accounting::Mechanism Mechanism::use_of(std::size_t c) const {
  if (!fixed_->router || c >= fixed_->router->classes())
    invalid_input(kOperator, "class {} does not exist", c);
  const RoutePlan& plan = fixed_->router->routes().plans[c];
  if (fixed_->is_laplace())
    return accounting::Laplace{accounting::laplace_scale(fixed_->router->noise_multiplier(c))};
  if (!fixed_->has_grid()) return noise_of_use(plan);
  double bound = plan.flat_clip.value_or(plan.blocks[0].clip);
  return fixed_->discrete_mechanism(fixed_->router->noise_multiplier(c),
                                    std::min(bound, plan.blocks[0].clip));
}

}  // namespace discreet::mechanism
