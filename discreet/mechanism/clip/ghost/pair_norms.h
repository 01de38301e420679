#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "discreet/numerics/parallel.h"

namespace discreet::mechanism {

// Norms for steps that are clipped elsewhere (Mechanism::take_norms), from what a backward pass has
// at hand, taken as exact. Matrices are row-major and contiguous; m is 2^-17 for float, 2^-45 for
// double. A record with a value that is not finite, or whose norm overflows, gets NaN or +inf.
// Everybody else gets 2^-1000 more than is said below, above all that underflow can take from
// squares. Throws kInvalidInput if the calling thread does not round to nearest or flushes
// subnormals.
//
// Proof: ghost.md

// x_i = sum_t g_it a_it^T, the gradient of a weight: a [records, positions, inputs] was multiplied
// with it, g [records, positions, outputs] is the gradient of the product.
template <class Real>
struct OuterFactors {
  const Real* a;
  const Real* g;
  std::size_t records, positions, inputs, outputs;
  bool bias = false;  // of the weight and a bias together: a has one more column, of ones
};

// squares[i] += |x_i|^2, estimated from above.
//   One position: never below |a_i|^2 |g_i|^2, and at most (1 + 3m) times it. +inf if |a_i| is
//   beyond 1e30: scaled by more than 1 such a row could overflow.
//   Several: never below it. sum_ts (a_t.a_s)(g_t.g_s), at least 0, and e (sum_t |a_t||g_t|)^2
//   more, which is what it can be off by (ghost.md, pairs): the dot products are of the precision
//   of the factors, in as many partial sums as a vector has lanes, the sum of their products is of
//   binary64. e = 1.03 u (inputs/lanes + outputs/lanes + 2 lanes) for float, u = 2^-24: 5e-6 for
//   256 inputs and outputs with 8 lanes; beyond 4096 of either it grows no more. Where positions
//   cancel, that is all that is left of a norm. team: whose threads work if there is enough to do;
//   null: this one.
template <class Real>
void add_outer_squares(const OuterFactors<Real>& factors, const numerics::Team* team,
                       std::span<double> squares);

// x_i = sum_t g_it e(place_it)^T, the gradient of a table that was looked up, or of a bias: the
// rows g [records, positions, width] are added up by their places.
template <class Real>
struct PlacedRows {
  const Real* g;
  const std::int64_t* places;  // [records, positions]; null: all have the same, as with a bias
  std::size_t records, positions, width;
};

// squares[i] += |x_i|^2: never below it, and at most (1 + 3m) (|x_i| + e l_i)^2 with
// e = 16 (positions + 8) 2^-53 and l_i the norm of the sums of |g_it| by their places. The sums are
// of binary64, so only what cancels to less than that is overstated.
template <class Real>
void add_placed_squares(const PlacedRows<Real>& rows, const numerics::Team* team,
                        std::span<double> squares);

// squares[i] += |row_i|^2 of [records, length]: never below it, and at most (1 + 3m) times it.
template <class Real>
void add_row_squares(const Real* rows, std::size_t length, std::span<double> squares);

}  // namespace discreet::mechanism
