#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/clip.h"
#include "discreet/numerics/rounding.h"

namespace discreet::mechanism {
namespace {

using numerics::next_down;
using numerics::next_up;

void check_bound(double bound, std::string_view what) {
  if (std::isfinite(bound) && bound > 0) return;
  invalid_config("Clip_v1", "the clip bound of {} is {}; it must be finite and positive", what,
                 bound);
}

}  // namespace

double norm_from_above(std::span<const double> norms) noexcept {
  if (norms.size() == 1) return norms[0];
  double largest = 0;
  for (const double v : norms) largest = std::max(largest, v);
  if (largest == 0 || !std::isfinite(largest)) return largest;
  double total = 0;
  for (const double v : norms) {
    const double ratio = next_up(v / largest);
    total = next_up(total + next_up(ratio * ratio));
  }
  return next_up(largest * next_up(std::sqrt(total)));
}

double clip_scale(double norm, double clip, std::optional<double> stability) noexcept {
  const double ratio = next_down(clip / next_up(norm + stability.value_or(kEpsClip)));
  return stability ? std::max(ratio, 0.0) : std::clamp(ratio, 0.0, 1.0);
}

void decide_scales(const ClipPlan& plan, RecordNorms& norms, std::optional<double> stability) {
  const std::size_t parts = plan.partition.parts();
  if (plan.clip.size() != parts || norms.parts != parts)
    invalid_config("Clip_v1",
                   "found {} clip bounds and norms of {} parts for a partition of {} parts",
                   plan.clip.size(), norms.parts, parts);
  for (std::size_t g = 0; g < parts; ++g) check_bound(plan.clip[g], plan.partition.names[g]);
  if (plan.flat_clip) check_bound(*plan.flat_clip, "all parts together");

  norms.scales.resize(norms.records * parts);
  std::vector<double> clipped(parts);
  for (std::size_t i = 0; i < norms.records; ++i) {
    const auto scales = std::span(norms.scales).subspan(i * parts, parts);
    if (norms.zeroed[i] != 0) {
      std::fill(scales.begin(), scales.end(), 0.0);
      continue;
    }
    for (std::size_t g = 0; g < parts; ++g) {
      scales[g] = clip_scale(norms.norm(i, g), plan.clip[g], stability);
      // The product of an overflowed norm and its scale 0 would be NaN.
      clipped[g] = scales[g] == 0 ? 0 : next_up(norms.norm(i, g) * scales[g]);
    }
    if (!plan.flat_clip) continue;
    const double flat = clip_scale(norm_from_above(clipped), *plan.flat_clip);
    for (double& scale : scales) scale = flat == 1 ? scale : std::max(0.0, next_down(scale * flat));
  }
}

}  // namespace discreet::mechanism
