#include <fmt/core.h>

#include "discreet/base/error.h"
#include "discreet/config/config_table.h"
#include "discreet/mechanism/route/route.h"

namespace discreet::mechanism {

Config routed_config(Config resolved, const Routes& routes, const ModelLayout& layout) {
  const DpConfig& dp = resolved.privacy;
  const auto refuse_if = [](bool wrong, std::string_view key, std::string_view why) {
    if (wrong)
      invalid_config("Router",
                     "{}: {}; in a routed run bounds come from descriptors and noise from "
                     "the policy",
                     key, why);
  };
  const DpConfig plain;
  refuse_if(!dp.enabled, "enabled", "is false, but contributions are promised noise");
  refuse_if(dp.debug, "debug", "is true");
  refuse_if(dp.adjacency != accounting::Adjacency::kZeroOut, "adjacency",
            "must be zero_out: a contribution stays in the corpus, but its payload may be zero");
  refuse_if(dp.mode != ScheduleMode::kFixed, "mode", "must be fixed");
  refuse_if(dp.clip_norm_adaptive || dp.clip_strategy == ClipStrategy::kAdaptive, "clipping.norm",
            "cannot be adaptive");
  refuse_if(dp.clip_norm_map || dp.sensitivity_map, "clip_norm_map", "has no meaning");
  refuse_if(
      dp.sigma_map || dp.per_layer_multiplier || dp.privacy_allocation != AllocationMode::kUniform,
      "privacy_allocation", "must be uniform, without sigma maps");
  refuse_if(dp.warmup != plain.warmup || dp.main != plain.main || dp.cooldown != plain.cooldown,
            "phases", "have no meaning");
  refuse_if(dp.projection_policy == ProjectionPolicy::kUpscale, "projection_policy",
            "cannot be upscale");
  refuse_if(dp.metrics_release != MetricsRelease::kNone, "metrics.release",
            "must be none: the promise of a contribution does not cover released counts");
  refuse_if(dp.compression != Compression::kNone, "noise.compression", "must be none");
  refuse_if(dp.accounting_adjustment_factor != 1, "accounting_adjustment_factor", "must be 1");
  refuse_if(routes.injection != Injection::kPerStep && dp.noise_family != NoiseFamily::kGaussian &&
                dp.noise_family != NoiseFamily::kSkellam,
            "noise.family",
            fmt::format("is {}, whose sum over slots belongs to another family; inject per step",
                        spelling(dp.noise_family)));
  resolved.privacy.noise_multiplier = Router(routes, layout).noise_multiplier();
  return resolved;
}

}  // namespace discreet::mechanism
