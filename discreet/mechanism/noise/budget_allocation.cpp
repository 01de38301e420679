#include "discreet/mechanism/noise/budget_allocation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "discreet/base/error.h"
#include "discreet/mechanism/noise/part_values.h"
#include "discreet/numerics/rounding.h"
#include "discreet/numerics/sum.h"

namespace discreet::mechanism {
namespace {

constexpr double kLeastSigma = 1e-8, kLargestSigma = 1e8;
constexpr double kLeastClip = 1e-100, kLargestClip = 1e100;  // squares stay normal numbers
constexpr double kHybridShare = 2;

constexpr const char* kOperator = "PrivacyBudgetAllocator_v1";

bool is_norm(SensitivitySource source) noexcept {
  return source == SensitivitySource::kPublicNorms || source == SensitivitySource::kNoisedNorms;
}

std::vector<double> choose_bounds(const DpConfig& config, const ModelLayout& layout,
                                  const SensitivityMap& map) {
  const Partition& partition = map.partition;
  const auto declared = values_by_part(layout, partition,
                                       config.clip_norm_map.value_or(NumberMap()), "clip_norm_map");
  const bool flat = cut_of(config.clip_strategy) == Cut::kFlat;
  const bool adaptive =
      config.clip_norm_adaptive || config.clip_strategy == ClipStrategy::kAdaptive;
  const double whole = numerics::norm_l2(map.sensitivity);
  const double C = config.clip_norm;
  std::vector<double> clip(partition.parts());
  for (std::size_t g = 0; g < clip.size(); ++g) {
    const double share = C * (map.sensitivity[g] / whole);
    if (declared[g]) {
      clip[g] = *declared[g];
    } else if (adaptive && is_norm(map.source[g])) {
      clip[g] = map.sensitivity[g];
    } else if (flat) {
      clip[g] = C;
    } else if (config.clip_strategy == ClipStrategy::kHybrid) {
      clip[g] = std::min(C, kHybridShare * share);
    } else {
      clip[g] = share;
    }
    if (!(clip[g] >= kLeastClip && clip[g] <= kLargestClip))
      invalid_config(kOperator, "the clip bound of {} is {}; it must be in [1e-100, 1e100]",
                     partition.names[g], clip[g]);
  }
  return clip;
}

double size_of(const ClipPlan& plan, std::size_t g) {
  return static_cast<double>(std::max<std::uint64_t>(plan.partition.elements[g], 1));
}

// The worst direction of a record against the best allocation: the squared norms u_g that maximise
// sum sqrt(d_g u_g) (budget_allocation.md). Without a flat bound every part is full.
std::vector<double> worst_norms(const ClipPlan& plan) {
  std::vector<double> u;
  for (const double c : plan.clip) u.push_back(c * c);
  if (!plan.flat_clip) return u;
  std::vector<std::size_t> order(u.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return u[a] / size_of(plan, a) < u[b] / size_of(plan, b);
  });
  double left = *plan.flat_clip * *plan.flat_clip;
  double sizes = 0;
  for (std::size_t g = 0; g < u.size(); ++g) sizes += size_of(plan, g);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t g = order[i];
    const double level = left / sizes;
    if (u[g] > level * size_of(plan, g)) {
      for (std::size_t j = i; j < order.size(); ++j) u[order[j]] = level * size_of(plan, order[j]);
      break;
    }
    left -= u[g];
    sizes -= size_of(plan, g);
  }
  return u;
}

std::vector<double> layer_wise_weights(const ClipPlan& plan) {
  const std::vector<double> u = worst_norms(plan);
  std::vector<double> weights;
  for (std::size_t g = 0; g < u.size(); ++g)
    weights.push_back(std::sqrt(std::sqrt(u[g] / size_of(plan, g))) / plan.clip[g]);
  return weights;
}

std::vector<double> custom_weights(const DpConfig& config, const ModelLayout& layout,
                                   const Partition& partition) {
  if (!config.sigma_map) invalid_config(kOperator, "privacy_allocation custom needs sigma_map");
  std::vector<double> weights;
  const auto values = values_by_part(layout, partition, *config.sigma_map, "sigma_map");
  for (std::size_t g = 0; g < values.size(); ++g) {
    if (!values[g])
      invalid_config(kOperator, "sigma_map has no value for {}; add one for every part",
                     partition.names[g]);
    weights.push_back(*values[g]);
  }
  return weights;
}

accounting::GaussianGroups groups_of(const ClipPlan& plan, const std::vector<double>& sigma) {
  accounting::GaussianGroups groups;
  for (std::size_t g = 0; g < sigma.size(); ++g) groups.groups.push_back({sigma[g], plan.clip[g]});
  groups.flat_clip = plan.flat_clip;
  return groups;
}

// Where each part has its own bound, the bounds cancel. They are left out, so that not even the
// last bit of a multiplier follows bounds that were adapted.
accounting::GaussianGroups without_bounds(accounting::GaussianGroups groups) {
  for (accounting::Group& group : groups.groups) group.clip = 1;
  return groups;
}

double effective_of(const ClipPlan& plan, const std::vector<double>& sigma) {
  accounting::GaussianGroups groups = groups_of(plan, sigma);
  if (!plan.flat_clip) groups = without_bounds(std::move(groups));
  const double effective = accounting::effective_noise_multiplier(groups);
  if (!std::isfinite(effective) || effective <= 0)
    invalid_config(kOperator,
                   "clip bounds and sigmas differ too much: their effective multiplier would be "
                   "{}; bring them closer together",
                   effective);
  return effective;
}

// Weights scaled to a sigma_eff slightly above 1: the rounding of the products and of the
// accountant may lower it again.
std::vector<double> normalised(const ClipPlan& plan, std::vector<double> weights) {
  const bool alone = weights.size() == 1 && (!plan.flat_clip || *plan.flat_clip >= plan.clip[0]);
  if (alone) return {1.0};
  const double largest = *std::max_element(weights.begin(), weights.end());
  for (double& w : weights) w /= largest;
  const double slack = (16 * static_cast<double>(weights.size()) + 128) * 0x1p-53;
  const double factor = (1 + 2 * slack) / effective_of(plan, weights);
  for (double& w : weights) w *= factor;
  while (effective_of(plan, weights) < 1 + slack)
    for (double& w : weights) w *= 1 + slack;
  return weights;
}

std::vector<double> weights_of(const DpConfig& config, const ModelLayout& layout,
                               const ClipPlan& plan) {
  if (config.sigma_map && config.privacy_allocation != AllocationMode::kCustom)
    invalid_config(kOperator,
                   "sigma_map is set, but privacy_allocation is not custom; remove one of the two");
  switch (config.privacy_allocation) {
    case AllocationMode::kLayerWise: return layer_wise_weights(plan);
    case AllocationMode::kCustom: return custom_weights(config, layout, plan.partition);
    case AllocationMode::kUniform: break;
  }
  return std::vector<double>(plan.clip.size(), 1.0);
}

}  // namespace

Allocation allocate_budget(const DpConfig& config, const ModelLayout& layout,
                           const SensitivityMap& sensitivities) {
  const Partition& partition = sensitivities.partition;
  if (partition.parts() == 0)
    invalid_config(kOperator,
                   "no tensor receives private gradients, so there is no budget to allocate");
  if (partition.part_of.size() != layout.size() ||
      sensitivities.sensitivity.size() != partition.parts())
    invalid_config(kOperator, "the sensitivity map belongs to another layout; analyze this one");
  Allocation out;
  out.plan.partition = partition;
  out.plan.clip = choose_bounds(config, layout, sensitivities);
  if (config.clip_strategy == ClipStrategy::kHybrid) out.plan.flat_clip = config.clip_norm;
  out.multiplier = normalised(out.plan, weights_of(config, layout, out.plan));
  const auto scale =
      values_by_part(layout, partition, config.per_layer_multiplier.value_or(NumberMap()),
                     "noise.per_layer_multiplier");
  out.follows_releases =
      std::ranges::count(sensitivities.source, SensitivitySource::kNoisedNorms) > 0;
  const bool weighed_by_bounds =
      config.privacy_allocation == AllocationMode::kLayerWise || out.plan.flat_clip;
  if (out.follows_releases && weighed_by_bounds && config.per_layer_multiplier)
    invalid_config(kOperator,
                   "noise.per_layer_multiplier with bounds that follow noised norms would make the "
                   "effective noise depend on releases; remove it, or use per_layer bounds with "
                   "privacy_allocation uniform");
  for (std::size_t g = 0; g < partition.parts(); ++g) out.multiplier[g] *= scale[g].value_or(1);
  out.effective = effective_of(out.plan, out.multiplier);
  return out;
}

void require_sigma_map(const DpConfig& config, const ModelLayout& layout, const ClipPlan& plan) {
  constexpr double kTolerance = 1e-9;
  if (config.privacy_allocation != AllocationMode::kCustom || config.noise_multiplier == 0 ||
      config.mode == ScheduleMode::kMeetExactly)
    return;
  const double effective = effective_of(plan, custom_weights(config, layout, plan.partition));
  if (std::fabs(config.noise_multiplier / effective - 1) <= kTolerance) return;
  invalid_config(kOperator,
                 "sigma_map has the effective multiplier {:.12g}, but noise_multiplier is {}; set "
                 "noise_multiplier: {:.12g} to draw the noise of the map, or multiply the map by "
                 "{:.12g} (as earlier versions did without saying so)",
                 effective, config.noise_multiplier, effective,
                 config.noise_multiplier / effective);
}

accounting::GaussianGroups gaussian_groups(const Allocation& allocation, double sigma_eff,
                                           std::optional<accounting::Adaptation> adaptation) {
  if (!std::isfinite(sigma_eff))
    fail(ErrorCode::kNanInSigma, "PrivacyBudgetAllocator_v1",
         "the noise multiplier is {}; it must be finite", sigma_eff);
  if (!(sigma_eff >= kLeastSigma && sigma_eff <= kLargestSigma))
    invalid_config(kOperator, "the noise multiplier is {}; it must be in [1e-8, 1e8]", sigma_eff);
  std::vector<double> sigma;
  for (const double m : allocation.multiplier) {
    const double product = m == 1 ? sigma_eff : numerics::next_up(m * sigma_eff);
    sigma.push_back(std::max(product, kLeastSigma));
  }
  accounting::GaussianGroups groups = groups_of(allocation.plan, sigma);
  groups.adaptation = adaptation;
  return groups;
}

accounting::GaussianGroups accounted_groups(const Allocation& allocation, double sigma_eff,
                                            std::optional<accounting::Adaptation> adaptation) {
  accounting::GaussianGroups groups = gaussian_groups(allocation, sigma_eff, adaptation);
  if (!allocation.follows_releases) return groups;
  if (allocation.effective < 1) return without_bounds(std::move(groups));
  groups.groups = {{sigma_eff, 1}};
  groups.flat_clip.reset();
  return groups;
}

double noise_energy(const Allocation& allocation, double sigma_eff) {
  std::vector<double> terms;
  for (std::size_t g = 0; g < allocation.multiplier.size(); ++g) {
    const double deviation = allocation.multiplier[g] * sigma_eff * allocation.plan.clip[g];
    terms.push_back(static_cast<double>(allocation.plan.partition.elements[g]) * deviation *
                    deviation);
  }
  return numerics::sum(terms);
}

}  // namespace discreet::mechanism
