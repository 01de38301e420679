#pragma once

#include <span>

#include "discreet/mechanism/clip/ghost/pair_norms.h"

namespace discreet::mechanism {

// Clipped sums for steps that are clipped elsewhere (Mechanism::take_norms): sum_i w_i x_i over
// records whose gradients are given as for their norms (pair_norms.h), added to binary64 numbers.
// A record of weight 0 is not read: it may hold anything. weights: one per record, finite.
//
// Proof: ghost.md (sums for PyTorch)

// sum [outputs, inputs] += sum_i w_i x_i. factors.bias is not read. Products and sums are of
// binary64, but for binary32 factors with several positions and at least kLeastBinary32Columns
// inputs and outputs: there the products of up to kBinary32Rows positions of one record are added
// up in binary32 and then merged in binary64. So a record's term has the same bits, whatever else
// is in the sum.
//   first: the sum counts as zeros, whatever it is.
inline constexpr std::size_t kBinary32Rows = 32;
inline constexpr std::size_t kLeastBinary32Columns = 32;
template <class Real>
void add_outer_sum(const OuterFactors<Real>& factors, std::span<const double> weights,
                   const numerics::Team* team, bool first, std::span<double> sum);

// sum [places, width] += sum_i w_i x_i, each term a product and a sum of binary64. Without places
// it has one row: of a bias, or (positions 1) of gradients that are there row by row. Every place
// is inside the sum, else kInvalidInput and nothing is added.
template <class Real>
void add_placed_sum(const PlacedRows<Real>& rows, std::span<const double> weights,
                    const numerics::Team* team, std::span<double> sum);

}  // namespace discreet::mechanism
