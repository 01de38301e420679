#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "discreet/random/generator.h"

namespace discreet::random {

// Who takes part in a step. All of it is exact: the laws hold without rounding when the
// generator's words are uniform. Draw from a stream of its own (stream::kSampling), at
// Position::at(step, 0); every result depends on the generator and the position only, never on
// threads or ranks.
// Proof: subsets.md

// A half-open range of record numbers, at most 2^51.
struct Records {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Poisson sampling: each record takes part independently with probability exactly `rate`, the
// binary64 number itself, to its last bit. Ascending record numbers of `records` that take part.
//   rate: in [0, 1]; else kInvalidDpConfig, also for NaN.
// The coin of a record does not depend on which other records are asked for. Time: 16 words per 64
// records, about half a nanosecond a record, plus the output; not O(output), because a skip
// over records would tie each coin to those before it, or need an inexact logarithm.
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
// Floyd's algorithm: O(size) draws and memory, whatever the population. `size` indices.
// size > population throws kInvalidDpConfig.
std::vector<std::uint64_t> fixed_size_subset(const Generator& generator, const Position& position,
                                             std::uint64_t population, std::uint64_t size);

// Balls and bins: out[i] is the bin, uniform on {0 … bins − 1}, of record
// position.coordinate + i. Use Position::at(epoch, 0, first record): a record's bin depends on the
// epoch and the record only. O(out.size()), one index per record.
// bins = 0 throws kInvalidDpConfig.
void assign_bins(const Generator& generator, const Position& position, std::uint32_t bins,
                 std::span<std::uint32_t> out, int threads = 1);

}  // namespace discreet::random
