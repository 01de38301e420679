#pragma once

#include <cstddef>
#include <cstdint>

#include "discreet/layout/gradients.h"
#include "discreet/layout/layer_pass.h"
#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {

// Proof: ghost.md

// UML_OS.DifferentialPrivacy.GhostClipPerSample_v1
//
// Clips every record's gradient and adds the results, using the inputs and output gradients of the
// layers: no per-sample gradient larger than a small tile is ever materialised. It makes two
// sweeps: first the norms of all layers, then one matrix product per layer with scaled output
// gradients.
//
// The norm of a record is never below that of its exact gradient: the real-number gradient defined
// by its inputs and output gradients. With L = sum_t ||a_t|| ||g_t|| over the positions of a record
// in a layer (L = ||gradient|| if T = 1), u = 2^-53:
//   T = 1               the product of two norms: at most a factor 1 + 60u above
//   Gram form           sqrt(exact^2 + 2 e L^2), e <= (2 (in + out) + 2T + 40) u
//   direct form         exact + e L,             e <= (2T + 40) u
//   embedding, bias, normalisation   as the direct form, L the norm of the sum of |terms|
// and at least L / 4096: a gradient that is the small remainder of large terms counts as that much,
// so that the rounding of its terms is small relative to the clip bound. The cheaper form is chosen
// for each layer: Gram if T (in + out) < 2 in out.
//
// sum:  receives the clipped gradients; unchanged if an exception is thrown.
// Throws as check_pass; kInvalidGradient, naming tensor and record, for a NaN or an infinity under
// Nonfinite::kAbort; kInvalidDpConfig for a plan that does not match the layout. Under
// Nonfinite::kZero a record that is not finite in one layer contributes zero to all. A norm beyond
// binary64, or activations beyond 2^900, count as +infinity: the record contributes zero.
// Additional memory: per thread a few megabytes and one record's unfolded convolution input; one
// byte per record and layer. max_microbatch is not used.
RecordNorms ghost_clip(const ModelLayout& layout, const BackwardPass<float>& pass,
                       const ClipPlan& plan, const ClipOptions& options, GradientSum& sum);
RecordNorms ghost_clip(const ModelLayout& layout, const BackwardPass<double>& pass,
                       const ClipPlan& plan, const ClipOptions& options, GradientSum& sum);

// The version of the bound that ghost.md proves and sensitivity_factor computes. Raise it whenever
// one of them changes: audits name it (Mechanism::ghost_bound).
inline constexpr std::uint64_t kGhostBoundVersion = 1;

// Whether the position of a record in its batch depends on other records.
enum class Slots : std::uint8_t {
  kFixed,    // no: adding or removing one record does not move others (zero-out)
  kShifted,  // yes: a batch is packed without gaps
};

// Sums are rounded, so one record changes the computed sum by more than its clip bound C, but at
// most by C (1 + eta). Returns 1 + eta, rounded up: multiply the sensitivity, or divide the noise
// multiplier, by it. With u' = 2^-24, R = binary32_records, B records and T positions,
//   eta = 2 N R u' + 2 B 4096 B T u   approximately, N = min(R, B) if fixed, else B.
//   records:    the maximum number of records of a step, over all its microbatches, < 2^30
//   positions:  the maximum number of positions of a layer; 1 if all layers are dense and have one;
//               < 2^30
// Rounding inside the backward pass itself is not included: the inputs are taken as exact.
double sensitivity_factor(std::size_t records, std::size_t positions, const ClipOptions& options,
                          Slots slots);

}  // namespace discreet::mechanism
