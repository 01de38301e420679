#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace discreet {

// The four recommended presets of the specification (0.M), as bases that a configuration extends:
// `extends: llm_flash` is the same as writing these keys out, and any key of the file wins.
//
// The specification gives words; what each word sets is decided here:
//   flash_efficient, fused  fused_kernel: true
//   per_layer, per_group, hybrid, peft_targeted   clipping.strategy
//   ghost                   clipping.ghost: true (norms without per-sample gradients)
//   pld                     accountant: pld
//   bounded_adaptive        clipping.norm: adaptive, paid for (adaptive_accounting: conservative)
//   scaling_law             projection.policy: upscale (the projector's advice raises sigma)
//   dynamic_projection      mode: dynamic_projection, which needs target_steps
//   budget_allocator        privacy_allocation: layer_wise
//   uniform_allocation      privacy_allocation: uniform
//   low_noise               noise_multiplier: 0.7 (adapters have few coordinates, so that less
//   noise
//                           still hides a record; the accountant charges what it costs)
//   safety_reserve          safety_budget_reserve
//   fsdp2, 3d_parallel      parallelism.type, which resolves to what the process runs on
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
