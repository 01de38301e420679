#pragma once

#include <variant>

#include "discreet/config/config.h"
#include "discreet/layout/layer_pass.h"
#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {

// The gradients of a microbatch, in any of the supported forms.
using Microbatch = std::variant<PerSampleGradients<float>, PerSampleGradients<double>,
                                BackwardPass<float>, BackwardPass<double>>;

std::size_t records_of(const Microbatch& microbatch) noexcept;

// What the noise and the configuration require of clipping; the bounds are in the plan.
struct ClipMethod {
  ClipStrategy strategy = ClipStrategy::kPerSample;
  bool fused = false;  // backward passes: by fused_clip, if every part lies in one layer
  // For discrete noise, > 0: every clipped coordinate is rounded toward zero to a whole number of
  // grid steps, and the sum counts grid steps. The norm of a record stays at most C. Sums of
  // integers below 2^53 are exact, so the bits are the same in any order and on any number of
  // ranks. A power of two, in the unit of the gradients.
  double grid = 0;
  // For Laplace noise, kL1: the contribution of a record has sum_j |x_j| <= C, hence also an L2
  // norm of at most C. summation_charge() covers the rounding of the sum in L1 as in L2. For one
  // part without a flat bound.
  Norm norm = Norm::kL2;
};

// UML_OS.DifferentialPrivacy.Clip_v1: clips every record of a microbatch according to the plan and
// adds the results to `sum`, by the method for its form:
//   per-sample gradients   clip_per_sample, or the method that grid and norm require
//   backward passes        ghost_clip, or fused_clip
// The plan implements the strategy: its partition is cut_of(strategy), with a flat bound for
// hybrid. Throws as these functions do, `sum` unchanged, and kInvalidDpConfig if
//   the strategy, grid or norm needs the other form: ghost clipping needs backward passes; a grid
//   and L1 norms need per-sample gradients
//   the grid is not a power of two (the error names the nearest), or C / grid is too large for
//   exact sums
//   the norm is kL1 and the plan has several bounds
RecordNorms clip(const ModelLayout& layout, const Microbatch& microbatch, const ClipMethod& method,
                 const ClipPlan& plan, const ClipOptions& options, GradientSum& sum);

// True if fused_clip supports the plan: no flat bound, and every part within one layer.
bool is_fusible(const ModelLayout& layout, const ClipPlan& plan);

}  // namespace discreet::mechanism
