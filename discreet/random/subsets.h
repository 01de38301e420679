#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "discreet/random/generator.h"

namespace discreet::random {

// Selects the records of a step. All functions are exact: the distributions hold without rounding
// if the generator's words are uniform. Draw from a separate stream (stream::kSampling), at
// Position::at(step, 0). Every result depends only on the generator and the position, never on
// threads or ranks.
// Proof: subsets.md

// A half-open range of record numbers, each at most 2^51.
struct Records {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Poisson sampling: each record is selected independently with probability exactly `rate`, to the
// last bit of the binary64 number. Returns the selected numbers of `records` in ascending order.
//   rate: in [0, 1]; otherwise, and for NaN, kInvalidDpConfig.
// The coin of a record does not depend on which other records are requested. Time: 16 words per 64
// records, about half a nanosecond per record, plus the output. It is not O(output), because
// skipping ahead would make each coin depend on the previous ones, or need an inexact logarithm.
// Consumes 8 indices per 64 records: poisson_indices(records.end).
std::vector<std::uint64_t> poisson_subset(const Generator& generator, const Position& position,
                                          Records records, double rate, int threads = 1);
constexpr std::uint64_t poisson_indices(std::uint64_t population) noexcept {
  return (population + 63) / 64 * 8;
}

// A uniformly random order of {0 … n − 1}: Fisher–Yates with unbiased integers. O(n), n indices.
std::vector<std::uint64_t> permutation(const Generator& generator, const Position& position,
                                       std::uint64_t n);

// A uniformly random subset of exactly `size` of the records {0 … population − 1}, ascending.
// Floyd's algorithm: O(size) draws and memory for any population. Consumes `size` indices. Throws
// kInvalidDpConfig if size > population.
std::vector<std::uint64_t> fixed_size_subset(const Generator& generator, const Position& position,
                                             std::uint64_t population, std::uint64_t size);

// Balls and bins: out[i] is the bin of record position.coordinate + i, uniform on {0 … bins − 1}.
// Use Position::at(epoch, 0, first record): a record's bin depends only on the epoch and the
// record. O(out.size()), one index per record. Throws kInvalidDpConfig if bins = 0.
void assign_bins(const Generator& generator, const Position& position, std::uint32_t bins,
                 std::span<std::uint32_t> out, int threads = 1);

}  // namespace discreet::random
