#pragma once

#include <span>

#include "discreet/mechanism/clip/ghost/pair_norms.h"

namespace discreet::mechanism {

// Clipped sums for steps that the caller clips (Mechanism::take_norms): sum_i w_i x_i over records
// whose gradients are given in the form of pair_norms.h, added to binary64 numbers. A record with
// weight 0 is not read and may contain anything. weights: one per record, finite.
//
// Proof: ghost.md (sums for PyTorch)

// sum [outputs, inputs] += sum_i w_i x_i. factors.bias is ignored. Products and sums are in
// binary64, except for binary32 factors with several positions and at least kLeastBinary32Columns
// inputs and outputs: there the products of up to kBinary32Rows positions of one record are added
// in binary32 and then merged in binary64. So the bits of a record's term do not depend on other
// records.
//   first: the sum counts as zeros, whatever it contains.
inline constexpr std::size_t kBinary32Rows = 32;
inline constexpr std::size_t kLeastBinary32Columns = 32;
template <class Real>
void add_outer_sum(const OuterFactors<Real>& factors, std::span<const double> weights,
                   const numerics::Team* team, bool first, std::span<double> sum);

// sum [places, width] += sum_i w_i x_i, each product and sum in binary64. Without places the sum
// has one row: for a bias, or (positions = 1) for explicit gradients. Every place must be inside
// the sum, otherwise kInvalidInput and nothing is added.
template <class Real>
void add_placed_sum(const PlacedRows<Real>& rows, std::span<const double> weights,
                    const numerics::Team* team, std::span<double> sum);

}  // namespace discreet::mechanism
