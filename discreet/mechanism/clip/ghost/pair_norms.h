#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "discreet/numerics/parallel.h"

namespace discreet::mechanism {

// Norms for steps that the caller clips (Mechanism::take_norms), from data of the backward pass,
// taken as exact. Matrices are row-major and contiguous; m is 2^-17 for float, 2^-45 for double. A
// record with a value that is not finite, or whose norm overflows, gets NaN or +inf. Every other
// record gets 2^-1000 more than stated below, which exceeds what underflow can remove from squares.
// Throws kInvalidInput if the calling thread does not round to nearest or flushes subnormals.
//
// Proof: ghost.md

// x_i = sum_t g_it a_it^T, the gradient of a weight: a [records, positions, inputs] is the input of
// the product, g [records, positions, outputs] the gradient of its output.
template <class Real>
struct OuterFactors {
  const Real* a;
  const Real* g;
  std::size_t records, positions, inputs, outputs;
  bool bias = false;  // of the weight and a bias together: a has an additional column of ones
};

// squares[i] += an upper estimate of |x_i|^2.
//   One position: at least |a_i|^2 |g_i|^2, and at most (1 + 3m) times that. +inf if |a_i| exceeds
//   1e30, because such a row could overflow when scaled by more than 1.
//   Several positions: at least the exact value. It is sum_ts (a_t.a_s)(g_t.g_s), at least 0, plus
//   e (sum_t |a_t||g_t|)^2, a bound of its error (ghost.md, pairs): the dot products have the
//   precision of the factors, with as many partial sums as a vector has lanes; the sum of their
//   products is in binary64. e = 1.03 u (inputs/lanes + outputs/lanes + 2 lanes) for float,
//   u = 2^-24: 5e-6 for 256 inputs and outputs with 8 lanes; it does not grow beyond 4096 of
//   either. If positions cancel, only this term remains of a norm.
//   team: threads to use if there is enough work; null: the calling thread only.
template <class Real>
void add_outer_squares(const OuterFactors<Real>& factors, const numerics::Team* team,
                       std::span<double> squares);

// x_i = sum_t g_it e(place_it)^T, the gradient of a look-up table or of a bias: the rows g
// [records, positions, width] are summed by place.
template <class Real>
struct PlacedRows {
  const Real* g;
  const std::int64_t* places;  // [records, positions]; null: one common place, as for a bias
  std::size_t records, positions, width;
};

// squares[i] += |x_i|^2 from above: at least it, and at most (1 + 3m) (|x_i| + e l_i)^2 with e = 16
// (positions + 8) 2^-53 and l_i the norm of the sums of |g_it| by place. The sums are in binary64,
// so only gradients that cancel to less than that are overestimated.
template <class Real>
void add_placed_squares(const PlacedRows<Real>& rows, const numerics::Team* team,
                        std::span<double> squares);

// squares[i] += |row_i|^2 of [records, length] from above: at least it, and at most (1 + 3m) times
// it.
template <class Real>
void add_row_squares(const Real* rows, std::size_t length, std::span<double> squares);

}  // namespace discreet::mechanism
