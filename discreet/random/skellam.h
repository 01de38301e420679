#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "discreet/random/discrete.h"
#include "discreet/random/exact.h"

namespace discreet::random {

// Poisson(rate) as a table of integer weights, w(k) ∝ rate^k/k! rounded down, with the largest
// weight 2^100. Drawing from the table is exact; the table differs from the Poisson law by a total
// variation distance of at most 2^-80.
// Proof: skellam.md
class PoissonTable {
 public:
  // rate: numerator ≤ 2^24, and rate ≤ 2^24. Throws kInvalidDpConfig beyond.
  // Takes O(√rate) time and memory (rate 2^24: 1.6 MB).
  explicit PoissonTable(Rational rate);

  std::uint64_t sample(WordReader& words) const;

  // The law of the table, for tests: P(first() + i) = (cumulative[i] − cumulative[i−1]) / total.
  std::uint64_t first() const noexcept { return first_; }
  std::span<const Uint128> cumulative() const noexcept { return cumulative_; }

 private:
  std::uint64_t first_ = 0;
  std::vector<Uint128> cumulative_;
};

// Skellam: the difference of two independent Poisson(variance / 2), symmetric on the integers, with
// the given variance in squared grid units. Within 2^-79 of the Skellam law in total variation per
// coordinate; n coordinates charge at most n·2^-79·(1 + e^ε) to δ.
// variance: numerator ≤ 2^24; else kInvalidDpConfig and nothing is written. One index per
// coordinate (discrete_indices). The accountant needs the L1, L2 and L∞ sensitivities.
void skellam(const Generator& generator, const Position& position, Rational variance,
             std::span<std::int64_t> out, int threads = 1);

}  // namespace discreet::random
