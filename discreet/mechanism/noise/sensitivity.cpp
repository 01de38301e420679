#include "discreet/mechanism/noise/sensitivity.h"

#include <algorithm>
#include <cmath>

#include "discreet/base/error.h"
#include "discreet/mechanism/noise/part_values.h"

namespace discreet::mechanism {
namespace {

constexpr const char* kOperator = "SensitivityAnalyzer_v1";

void check(const NormHistory& norms, const Partition& partition) {
  if (norms.values().size() != partition.parts())
    invalid_config(kOperator, "the norm history has {} norms; expected one for each of {} parts",
                   norms.values().size(), partition.parts());
  for (std::size_t g = 0; g < partition.parts(); ++g)
    if (const double norm = norms.values()[g]; !std::isfinite(norm) || norm <= 0)
      invalid_config(kOperator, "the norm history has {} for {}; it must be finite and positive",
                     norm, partition.names[g]);
}

void check(const RoutingStats& routing, const ModelLayout& layout) {
  const bool fits = std::ranges::any_of(layout.tensors(), [&](const Tensor& tensor) {
    return tensor.experts && tensor.experts->count == routing.values().size();
  });
  if (!fits)
    invalid_config(kOperator, "routing_stats has {} shares, but no tensor has that many experts",
                   routing.values().size());
  for (const double share : routing.values())
    if (!(share >= 0 && share <= 1))
      invalid_config(kOperator, "routing_stats contains {}; a share must be in [0, 1]", share);
}

}  // namespace

Cut cut_of(ClipStrategy strategy) noexcept {
  switch (strategy) {
    case ClipStrategy::kPerLayer: return Cut::kLayer;
    case ClipStrategy::kPerGroup:
    case ClipStrategy::kHybrid: return Cut::kGroup;
    case ClipStrategy::kPerTensor: return Cut::kTensor;
    case ClipStrategy::kPerSample:
    case ClipStrategy::kGhost:
    case ClipStrategy::kPeftTargeted:
    case ClipStrategy::kAdaptive: break;
  }
  return Cut::kFlat;
}

SensitivityMap analyze_sensitivity(const DpConfig& config, const ModelLayout& layout,
                                   const NormHistory* norms, const RoutingStats* routing) {
  if (!std::isfinite(config.clip_norm) || config.clip_norm <= 0)
    invalid_config(kOperator, "clipping.norm is {}; it must be finite and positive",
                   config.clip_norm);
  SensitivityMap map;
  map.partition = partition(layout, cut_of(config.clip_strategy));
  const std::size_t parts = map.partition.parts();
  if (norms != nullptr) check(*norms, map.partition);
  if (routing != nullptr) check(*routing, layout);

  const auto declared = values_by_part(
      layout, map.partition, config.sensitivity_map.value_or(NumberMap()), "sensitivity_map");
  const auto bounds = values_by_part(layout, map.partition,
                                     config.clip_norm_map.value_or(NumberMap()), "clip_norm_map");
  const double share = config.clip_norm / std::sqrt(static_cast<double>(parts));
  for (std::size_t g = 0; g < parts; ++g) {
    if (declared[g]) {
      map.sensitivity.push_back(*declared[g]);
      map.source.push_back(SensitivitySource::kDeclared);
    } else if (norms != nullptr) {
      map.sensitivity.push_back(norms->values()[g]);
      map.source.push_back(norms->is_noised() ? SensitivitySource::kNoisedNorms
                                              : SensitivitySource::kPublicNorms);
    } else {
      map.sensitivity.push_back(bounds[g].value_or(share));
      map.source.push_back(SensitivitySource::kClipBound);
    }
  }
  return map;
}

double effective_sampling_rate(double rate, const RoutingStats* /*routing*/) noexcept {
  return rate;
}

}  // namespace discreet::mechanism
