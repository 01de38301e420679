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

// The private parameters are divided into parts g; part g is clipped to C_g and gets noise of
// standard deviation sigma_g C_g on each of its d_g coordinates. Together the parts are one
// Gaussian release of multiplier sigma_eff (accounting::effective_noise_multiplier). The allocation
// divides a given sigma_eff among the parts.
//
//   uniform     sigma_g is equal for all parts: sigma_eff sqrt(G) if each has its own bound,
//               sigma_eff for one flat part.
//   layer_wise  sigma_g^2 ∝ 1 / (C_g sqrt(d_g)): for these C_g, no other choice with the same
//               sigma_eff has a smaller noise energy sum_g d_g sigma_g^2 C_g^2; it is
//               sigma_eff^2 (sum_g C_g sqrt(d_g))^2. With a flat bound (hybrid):
//               sigma_g^2 ∝ sqrt(u_g) / (C_g^2 sqrt(d_g)), u_g = min(C_g^2, lambda d_g) with
//               sum u_g = flat_clip^2.
//   custom      sigma_g ∝ sigma_map, which must name every part; sigma_g = sigma_map at the
//               noise_multiplier of the configuration (require_sigma_map).
//
// Then noise.per_layer_multiplier scales the sigma_g of the parts it names. The scaled values are
// drawn and accounted, so sigma_eff changes.
//
// The bounds C_g are, in this order of precedence: clip_norm_map; the adapted bound (clipping.norm:
// adaptive, or strategy adaptive, with a norm history); clipping.norm itself for a flat cut;
// otherwise the share
//   C_g = C s_g / sqrt(sum s^2)   of C = clipping.norm, where s is the sensitivity map,
// so that sum C_g^2 = C^2 up to rounding. Under hybrid each part gets twice the share, at most C,
// within the flat bound C, so that a record may use its norm unevenly. The sum of the C_g^2 need
// not be exact: each C_g is enforced and accounted as it is.
struct Allocation {
  ClipPlan plan;                   // the clip_norm_map
  std::vector<double> multiplier;  // the allocation_map: sigma_g / sigma_eff, one per part
  // The effective multiplier of the parts at sigma_eff = 1, rounded down (less noise). At least 1
  // unless per_layer_multiplier lowered it.
  double effective = 1;
  bool follows_releases = false;  // some bound is derived from noised norms
};

// UML_OS.DifferentialPrivacy.PrivacyBudgetAllocator_v1
//   layout:        as passed to analyze_sensitivity.
//   sensitivities: public or noised, from analyze_sensitivity; they include the norm history.
// Throws kInvalidDpConfig, naming key or part, if there is no private parameter; if a part is
// missing from a map or a key of a map is unknown; if per_layer_multiplier is combined with bounds
// that follow noised norms under layer_wise or hybrid, because sigma_eff would then depend on
// released values; if a bound is outside [1e-100, 1e100]; or if bounds and sigmas differ so much
// that binary64 cannot hold their sum.
Allocation allocate_budget(const DpConfig& config, const ModelLayout& layout,
                           const SensitivityMap& sensitivities);

// Throws kInvalidDpConfig, with both numbers, unless noise_multiplier is the effective multiplier
// of sigma_map under the bounds of `plan`, within a relative 1e-9: at that multiplier the noise of
// each part is that of the map. Accepts any map if there is no noise, or if the mode is
// meet_exactly_at_target_steps, which determines the scale of the noise itself.
void require_sigma_map(const DpConfig& config, const ModelLayout& layout, const ClipPlan& plan);

// The mechanism of a step at base multiplier sigma_eff, for the accounting event. Its groups are
// the sigma_g (products rounded up) and C_g of the parts, in order.
//   sigma_eff: in [1e-8, 1e8], the range of the specification, otherwise kInvalidDpConfig;
//              kNanInSigma if it is not finite. A sigma_g below 1e-8 is raised to 1e-8; none is
//              lowered to 1e8, because the result would have less noise than requested.
//   adaptation: counts released in the same step; they lower the effective multiplier.
// Postcondition without adaptation and per_layer_multiplier:
//   accounting::effective_noise_multiplier(result) >= sigma_eff, and equal for a single part.
accounting::GaussianGroups gaussian_groups(
    const Allocation& allocation, double sigma_eff,
    std::optional<accounting::Adaptation> adaptation = std::nullopt);

// The mechanism that the accountant composes for that step. If the bounds are fixed in advance,
// this is gaussian_groups(). If they follow releases, it is the same mechanism expressed
// independently of them: one group {sigma_eff, 1} or, if per_layer_multiplier lowered the noise,
// the sigma_g with bounds of 1 (each part then has its own bound, and they cancel). It has at most
// the noise that is drawn and does not depend on releases, so the schedule stays fixed in advance
// and every accountant may compose it: bounds may adapt, the effective multiplier may not.
accounting::GaussianGroups accounted_groups(
    const Allocation& allocation, double sigma_eff,
    std::optional<accounting::Adaptation> adaptation = std::nullopt);

// sum_g d_g sigma_g^2 C_g^2: the expected squared norm of the noise on the sum of gradients.
double noise_energy(const Allocation& allocation, double sigma_eff);

}  // namespace discreet::mechanism
