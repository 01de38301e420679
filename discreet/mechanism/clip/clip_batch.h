#pragma once

#include <variant>

#include "discreet/config/config.h"
#include "discreet/layout/layer_pass.h"
#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {

// The gradients of a microbatch, in the form whoever trains has them.
using Microbatch = std::variant<PerSampleGradients<float>, PerSampleGradients<double>,
                                BackwardPass<float>, BackwardPass<double>>;

std::size_t records_of(const Microbatch& microbatch) noexcept;

// UML_OS.DifferentialPrivacy.Clip_v1: clips every record of a microbatch as the plan says and adds
// the results to `sum`, by whichever way its form and the strategy ask for:
//   per-sample gradients   clip_per_sample
//   backward passes        ghost_clip; fused_clip if `fused` and every part lies in one layer
// The plan holds the strategy: its partition is cut_of(strategy), with a flat bound for hybrid.
// Throws as these do, `sum` unchanged, and kInvalidDpConfig if the strategy needs the other form:
// ghost clipping needs backward passes.
RecordNorms clip(const ModelLayout& layout, const Microbatch& microbatch, ClipStrategy strategy,
                 bool fused, const ClipPlan& plan, const ClipOptions& options, GradientSum& sum);

// Whether fused_clip can serve the plan: no flat bound, and every part within one layer.
bool is_fusible(const ModelLayout& layout, const ClipPlan& plan);

// For discrete noise: as clip_per_sample, but every clipped coordinate is cut toward zero to a
// whole number of grid steps, and `sum` counts grid steps. The norm of a record stays at most C,
// and sums of whole numbers below 2^53 are exact: the same bits in any order, on any number of
// ranks.
//   grid: a power of two, in the unit of the gradients; else kInvalidDpConfig with the nearest one.
// Throws as clip_per_sample; kInvalidDpConfig for backward passes, which have no vector per record;
// kInvalidGradient, `sum` unchanged, if C / grid is too large for exact sums.
RecordNorms clip_to_grid(const ModelLayout& layout, const Microbatch& microbatch,
                         const ClipPlan& plan, double grid, const ClipOptions& options,
                         GradientSum& sum);

// For Laplace noise: as clip_per_sample for a plan of one part, but norm and bound are those of L1:
// what is added for a record has sum_j |x_j| <= C, hence an L2 norm of at most C too. The rounding
// of the sum is charged by summation_charge(), in L1 as in L2.
// Throws as clip_per_sample; kInvalidDpConfig for backward passes, whose L1 norms nothing cheap
// bounds, and for a plan of several parts or with a flat bound.
RecordNorms clip_in_l1(const ModelLayout& layout, const Microbatch& microbatch,
                       const ClipPlan& plan, const ClipOptions& options, GradientSum& sum);

}  // namespace discreet::mechanism
