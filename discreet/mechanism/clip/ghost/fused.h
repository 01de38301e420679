#pragma once

#include "discreet/layout/gradients.h"
#include "discreet/layout/layer_pass.h"
#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {

// UML_OS.DifferentialPrivacy.FlashEfficientClip_v1
//
// As ghost_clip, with the same bits in norms, scales and sum, but a layer at a time: its norms, its
// scales and its clipped sum, while its inputs are still in the caches. Nothing per sample is
// stored but the norms; no noise is drawn, so that one draw per step covers the whole sum.
//
// It needs bounds that are known within a layer: every part of the plan belongs to one pass, and
// there is no flat bound (per_layer, per_tensor, and per_group where a group is a layer). Otherwise
// throws kInvalidDpConfig, naming the part. All else as ghost_clip.
RecordNorms fused_clip(const ModelLayout& layout, const BackwardPass<float>& pass,
                       const ClipPlan& plan, const ClipOptions& options, GradientSum& sum);
RecordNorms fused_clip(const ModelLayout& layout, const BackwardPass<double>& pass,
                       const ClipPlan& plan, const ClipOptions& options, GradientSum& sum);

}  // namespace discreet::mechanism
