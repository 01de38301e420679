#include "discreet/config/config_preset.h"

#include <array>

namespace discreet {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"llm_flash", "peft_max_utility",
                                                    "regulated_fair", "frontier_trillion"};

}  // namespace

std::span<const std::string_view> preset_names() { return kNames; }

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {kNames[0],
       "Language models: fused per-layer clipping with private adaptive bounds",
       {{"clipping.strategy", "per_layer"},
        {"clipping.norm", "adaptive"},
        {"privacy.adaptive_accounting", "conservative"},
        {"accountant", "pld"},
        {"fused_kernel", "true"},
        {"projection.policy", "upscale"},
        {"parallelism.type", "fsdp2"}}},
      {kNames[1],
       "Adapters on a public model: little noise for the few trainable parameters",
       {{"clipping.strategy", "peft_targeted"},
        {"clipping.ghost", "true"},
        {"accountant", "pld"},
        {"privacy_allocation", "layer_wise"},
        {"noise_multiplier", "0.7"}}},
      {kNames[2],
       "Regulated use: bounds per group so that no group is clipped away, and a larger reserve",
       {{"regulated", "true"},
        {"nonfinite", "zero"},
        {"clipping.strategy", "per_group"},
        {"clipping.norm", "adaptive"},
        {"privacy.adaptive_accounting", "conservative"},
        {"accountant", "pld"},
        {"privacy_allocation", "uniform"},
        {"safety_budget_reserve", "0.12"}}},
      {kNames[3],
       "The largest models: hybrid clipping, and noise that follows the projected budget",
       {{"clipping.strategy", "hybrid"},
        {"fused_kernel", "true"},
        {"accountant", "pld"},
        {"mode", "dynamic_projection"},
        {"parallelism.type", "3d"}}},
  };
  return all;
}

}  // namespace discreet
