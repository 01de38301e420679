#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {

// Builds clip plans: the partition of a cut with its bounds.

// The plan of a cut from bounds by name (clip_norm_map), in the order of the parts.
//   bounds   one for the name of every part, and for no other name
// Throws kInvalidDpConfig, naming the part without a bound or, for an unknown name, the nearest
// part. Whether a bound is finite and positive is checked on use.
ClipPlan clip_plan(const ModelLayout& layout, Cut cut, const std::map<std::string, double>& bounds);
// The same bound for every part.
ClipPlan clip_plan(const ModelLayout& layout, Cut cut, double bound);

// UML_OS.DifferentialPrivacy.PEFTAwareClipHandler_v1: clips and accounts only privately trained
// parameters.
struct PeftStats {
  std::uint64_t parameters = 0;            // of the whole model
  std::uint64_t trainable_parameters = 0;  // by the mask
  std::uint64_t private_parameters = 0;    // trainable and in no public module
  std::uint64_t adapter_parameters = 0;    // private and part of an adapter
  // How much longer the noise vector would be if the whole model were trained with the same sigma
  // and clip bound: sqrt(parameters / private_parameters), >= 1.
  double noise_reduction_factor = 1;
};
struct PeftPlan {
  ModelLayout layout;  // the given layout with the mask and the public modules applied
  ClipPlan plan;       // flat
  PeftStats stats;
};
// trainable_mask: one per tensor of the layout; empty: the layout's own flags. Clip with
// clip_per_sample(peft.layout, gradients, peft.plan, ...): tensors outside the mask and of public
// modules are not read and have no place in the sum. Throws kInvalidDpConfig for a mask of the
// wrong length, a public module without tensors, or if no private parameter is left.
PeftPlan plan_peft(const ModelLayout& layout, std::span<const bool> trainable_mask,
                   std::span<const std::string> public_modules, double bound);

}  // namespace discreet::mechanism
