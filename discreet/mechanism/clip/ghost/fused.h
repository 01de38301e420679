#pragma once

#include "discreet/layout/gradients.h"
#include "discreet/layout/layer_pass.h"
#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {

// UML_OS.DifferentialPrivacy.FlashEfficientClip_v1
//
// As ghost_clip, with the same bits in norms, scales and sum, but layer by layer: the norms, scales
// and clipped sum of a layer are computed while its inputs are in the caches. The norms are the
// only per-sample data stored. No noise is drawn, so one draw per step covers the whole sum.
//
// The bounds must be decidable within a layer: every part of the plan belongs to one pass, and
// there is no flat bound (per_layer, per_tensor, and per_group if a group is a layer). Otherwise
// throws kInvalidDpConfig, naming the part. In all other respects as ghost_clip.
RecordNorms fused_clip(const ModelLayout& layout, const BackwardPass<float>& pass,
                       const ClipPlan& plan, const ClipOptions& options, GradientSum& sum);
RecordNorms fused_clip(const ModelLayout& layout, const BackwardPass<double>& pass,
                       const ClipPlan& plan, const ClipOptions& options, GradientSum& sum);

}  // namespace discreet::mechanism
