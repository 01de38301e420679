#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {

// From a layout to what is clipped: the partition of a cut with its bounds.

// The plan of a cut from bounds by name, in the order of the parts: clip_norm_map.
//   bounds   a bound for the name of every part, and for no other name
// Throws kInvalidDpConfig, naming the part without a bound, or the nearest part of a name that is
// none. (That a bound is finite and positive is checked where it is used.)
ClipPlan clip_plan(const ModelLayout& layout, Cut cut, const std::map<std::string, double>& bounds);
// One bound for every part.
ClipPlan clip_plan(const ModelLayout& layout, Cut cut, double bound);

// UML_OS.DifferentialPrivacy.PEFTAwareClipHandler_v1: only what is trained privately is clipped and
// accounted.
struct PeftStats {
  std::uint64_t parameters = 0;            // of the model
  std::uint64_t trainable_parameters = 0;  // by the mask
  std::uint64_t private_parameters = 0;    // trainable and of no public module
  std::uint64_t adapter_parameters = 0;    // private and part of an adapter
  // How much longer the noise vector would be if the whole model were trained with the same sigma
  // and clip bound: sqrt(parameters / private_parameters), >= 1.
  double noise_reduction_factor = 1;
};
struct PeftPlan {
  ModelLayout layout;  // the layout given, with the mask and the public modules in it
  ClipPlan plan;       // flat
  PeftStats stats;
};
// trainable_mask: one per tensor of the layout; empty: as the layout says. Clip with
// clip_per_sample(peft.layout, gradients, peft.plan, ...): tensors outside the mask and of public
// modules are neither read nor given room in the sum.
// Throws kInvalidDpConfig for a mask of another length, a public module without tensors, or if
// nothing private is left to train.
PeftPlan plan_peft(const ModelLayout& layout, std::span<const bool> trainable_mask,
                   std::span<const std::string> public_modules, double bound);

}  // namespace discreet::mechanism
