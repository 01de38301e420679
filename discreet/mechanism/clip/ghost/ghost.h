#pragma once

#include <cstddef>

#include "discreet/layout/gradients.h"
#include "discreet/layout/layer_pass.h"
#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {

// Proof: ghost.md

// UML_OS.DifferentialPrivacy.GhostClipPerSample_v1
//
// Clips every record's gradient and adds the results, from the inputs and output gradients of the
// layers: no per-sample gradient of more than a small tile is ever formed. Two sweeps: the norms of
// all layers, then one product of matrices per layer, the output gradients scaled.
//
// The norm of a record is never below that of its exact gradient, the real-number gradient that its
// inputs and output gradients define. With L = sum_t ||a_t|| ||g_t|| over the positions of a
// record in a layer (L = ||gradient|| when T = 1), u = 2^-53:
//   T = 1               the product of two norms: at most a factor 1 + 60u above
//   Gram form           sqrt(exact^2 + 2 e L^2), e <= (2 (in + out) + 2T + 40) u
//   direct form         exact + e L,             e <= (2T + 40) u
//   embedding, bias, normalisation   as the direct form, L the norm of the sum of |terms|
// and at least L / 4096: a gradient that is the small rest of large terms counts as that much, so
// that the rounding of its terms stays small beside the clip bound. The cheaper form is chosen per
// layer: Gram if T (in + out) < 2 in out.
//
// sum:  the clipped gradients are added; untouched if anything is thrown.
// Throws as check_pass; kInvalidGradient, naming tensor and record, for a NaN or an infinity under
// Nonfinite::kAbort; kInvalidDpConfig for a plan that does not fit the layout.
// A record that is not finite in one layer contributes zero to all under Nonfinite::kZero. A norm
// beyond binary64, or activations beyond 2^900, count as +infinity: the record contributes zero.
// Memory beside the inputs: per thread a few megabytes and one record's unfolded input of a
// convolution; a byte per record and layer. max_microbatch is not needed.
RecordNorms ghost_clip(const ModelLayout& layout, const BackwardPass<float>& pass,
                       const ClipPlan& plan, const ClipOptions& options, GradientSum& sum);
RecordNorms ghost_clip(const ModelLayout& layout, const BackwardPass<double>& pass,
                       const ClipPlan& plan, const ClipOptions& options, GradientSum& sum);

// Whether the place of a record in its batch depends on the others.
enum class Slots : std::uint8_t {
  kFixed,    // no: one record more or less leaves all others in their place (zero-out)
  kShifted,  // yes: a batch is packed without gaps
};

// Sums are rounded, so one record changes the computed sum by more than its clip bound C: by at
// most C (1 + eta). Returns 1 + eta, rounded up: multiply the sensitivity, or divide the noise
// multiplier, by it. With u' = 2^-24, R = binary32_records, B records and T positions,
//   eta = 2 N R u' + 2 B 4096 B T u   approximately, N = min(R, B) if fixed, else B.
//   records:    the most records of a step, over all its microbatches, < 2^30
//   positions:  the most positions of a layer; 1 if all layers are dense and have one; < 2^30
// What the backward pass itself rounded is outside: the inputs are taken as exact.
double sensitivity_factor(std::size_t records, std::size_t positions, const ClipOptions& options,
                          Slots slots);

}  // namespace discreet::mechanism
