#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace discreet {

// The four recommended presets of the specification (0.M), as bases that a configuration extends:
// `extends: llm_flash` is equivalent to writing these keys; a key in the file overrides the preset.
//
// The specification names features; this list defines the keys they set:
//   flash_efficient, fused  fused_kernel: true
//   per_layer, per_group, hybrid, peft_targeted   clipping.strategy
//   ghost                   clipping.ghost: true (norms without per-sample gradients)
//   pld                     accountant: pld
//   bounded_adaptive        clipping.norm: adaptive, accounted (adaptive_accounting: conservative)
//   scaling_law             projection.policy: upscale (the projector's advice raises sigma)
//   dynamic_projection      mode: dynamic_projection, which needs target_steps
//   budget_allocator        privacy_allocation: layer_wise
//   uniform_allocation      privacy_allocation: uniform
//   low_noise               noise_multiplier: 0.7 (for adapters, which have few coordinates; the
//                           accountant charges its cost)
//   safety_reserve          safety_budget_reserve
//   fsdp2, 3d_parallel      parallelism.type, which resolves to the engine of the process
// regulated_fair also sets regulated: true, and with it nonfinite: zero.
struct PresetKey {
  std::string_view path;   // below security.differential_privacy
  std::string_view value;  // as a configuration file writes it
};
struct Preset {
  std::string_view name;
  std::string_view summary;
  std::vector<PresetKey> keys;
};

const std::vector<Preset>& presets();
std::span<const std::string_view> preset_names();

}  // namespace discreet
