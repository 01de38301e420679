#pragma once

#include <optional>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/config/config.h"
#include "discreet/layout/layout.h"
#include "discreet/mechanism/clip/clip.h"
#include "discreet/mechanism/noise/sensitivity.h"

namespace discreet::mechanism {

// Proof: budget_allocation.md

// The private parameters are cut into parts g; part g is clipped to C_g and gets noise of standard
// deviation sigma_g C_g on each of its d_g coordinates. Together the parts are one Gaussian release
// of multiplier sigma_eff (accounting::effective_noise_multiplier). Allocation divides a given
// sigma_eff among the parts.
//
//   uniform     sigma_g is the same for all parts: sigma_eff sqrt(G) where each has its own bound,
//               sigma_eff for one flat part.
//   layer_wise  sigma_g^2 ∝ 1 / (C_g sqrt(d_g)): for these C_g, no other choice of the same
//               sigma_eff has a smaller noise energy sum_g d_g sigma_g^2 C_g^2; it is
//               sigma_eff^2 (sum_g C_g sqrt(d_g))^2. Under a flat bound too (hybrid):
//               sigma_g^2 ∝ sqrt(u_g) / (C_g^2 sqrt(d_g)), u_g = min(C_g^2, lambda d_g) with
//               sum u_g = flat_clip^2.
//   custom      sigma_g ∝ sigma_map, which must reach every part.
//
// Afterwards noise.per_layer_multiplier scales the sigma_g of the parts that it names. The scaled
// values are what is drawn and what is accounted, so that sigma_eff changes.
//
// The bounds C_g, in this order: clip_norm_map; the adapted bound (clipping.norm: adaptive, or
// strategy adaptive, with a norm history); clipping.norm itself for a flat cut; otherwise the share
//   C_g = C s_g / sqrt(sum s^2)   of C = clipping.norm, s the sensitivity map,
// so that sum C_g^2 = C^2 up to rounding; under hybrid twice the share, at most C, inside the flat
// bound C, so that a record may spend its norm unevenly. Sums of C_g^2 need not be exact: each C_g
// is enforced and accounted as it is.
struct Allocation {
  ClipPlan plan;                   // the clip_norm_map
  std::vector<double> multiplier;  // the allocation_map: sigma_g / sigma_eff, one per part
  // Effective multiplier of the parts at sigma_eff = 1, rounded towards less noise: at least 1
  // unless per_layer_multiplier lowered it.
  double effective = 1;
  bool follows_releases = false;  // some bound comes from noised norms
};

// UML_OS.DifferentialPrivacy.PrivacyBudgetAllocator_v1
//   layout:        as given to analyze_sensitivity.
//   sensitivities: public or noised, as analyze_sensitivity gives them; the norm history is in
//   them.
// Throws kInvalidDpConfig, naming key or part, if there is no private parameter, a part is missing
// from or a key is unknown to a map; if per_layer_multiplier meets bounds that follow noised norms
// under layer_wise or hybrid, because sigma_eff would then react to what is released; a bound is
// outside [1e-100, 1e100], or bounds and sigmas are so unequal that binary64 cannot hold their sum.
Allocation allocate_budget(const DpConfig& config, const ModelLayout& layout,
                           const SensitivityMap& sensitivities);

// The mechanism of a step at base multiplier sigma_eff, for the accounting event. Its groups are
// the sigma_g (products rounded up) and C_g of the parts, in order.
//   sigma_eff: in [1e-8, 1e8], the specification's range; else kInvalidDpConfig, kNanInSigma if it
//              is not finite. Each sigma_g is raised to 1e-8 at least; none is lowered to 1e8,
//              because the whole would have less noise than was asked.
//   adaptation: counts released beside it; they lower the effective multiplier.
// Postcondition without adaptation and per_layer_multiplier:
//   accounting::effective_noise_multiplier(result) >= sigma_eff, and equal for a single part.
accounting::GaussianGroups gaussian_groups(
    const Allocation& allocation, double sigma_eff,
    std::optional<accounting::Adaptation> adaptation = std::nullopt);

// What the accountant composes for that step: gaussian_groups() itself where the bounds are fixed
// in advance. Where they follow releases, the same mechanism in terms that do not: one group
// {sigma_eff, 1}, or, where per_layer_multiplier lowered the noise, the sigma_g with bounds of 1
// (each part has its own bound then, and they cancel). It has no more noise than is drawn and is
// the same whatever was released, so that the schedule stays fixed in advance and every accountant
// may compose it: bounds may adapt, the effective multiplier may not.
accounting::GaussianGroups accounted_groups(
    const Allocation& allocation, double sigma_eff,
    std::optional<accounting::Adaptation> adaptation = std::nullopt);

// sum_g d_g sigma_g^2 C_g^2: the expected squared norm of the noise on the sum of gradients.
double noise_energy(const Allocation& allocation, double sigma_eff);

}  // namespace discreet::mechanism
