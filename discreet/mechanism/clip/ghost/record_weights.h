#pragma once

#include <cstddef>
#include <span>

namespace discreet::mechanism {

// From the squares of pair_norms.h to the weights of record_sums.h, for steps that the caller clips
// (Mechanism::take_norms). Squares and weights are [parts, records]; norms and scales are
// [records, parts].
//
// Proof: ghost.md (weights for PyTorch)

// norms = factor sqrt(squares), never below it if each square is a sum over at most 2^12 tensors.
//   factor: the number by which every record's gradient was divided, such as the batch size
void norms_from_squares(std::span<const double> squares, std::size_t parts, double factor,
                        std::span<double> norms);

// weights = factor scales, rounded down by more than what a product with a weight can gain when it
// is rounded to the precision of the model. 0 for a record with a norm that is not finite, and for
// a weight below 2^-60, which would leave products with few bits in binary32.
//   wide: the model is in binary64, not binary32
void weights_from_scales(std::span<const double> norms, std::span<const double> scales,
                         std::size_t parts, double factor, bool wide, std::span<double> weights);

// Both for one part with clip bound `bound`, by clip_scale(): the weights of a layer that is
// clipped as soon as its gradient is known.
void clipped_weights(std::span<const double> squares, double bound, double norm_factor,
                     double factor, bool wide, std::span<double> weights);

}  // namespace discreet::mechanism
