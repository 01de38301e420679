#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "discreet/random/discrete.h"
#include "discreet/random/exact.h"

namespace discreet::random {

// Poisson(rate) as a table of integer weights: w(k) ∝ rate^k/k!, rounded down, with largest weight
// 2^192. Drawing from the table is exact; the table's total variation distance from the Poisson law
// is at most 2^-170.
// Proof: skellam.md
class PoissonTable {
 public:
  // rate: both parts at most 2^24, otherwise kInvalidDpConfig.
  // Takes O(√rate) time and memory (rate 2^24: 4 MB).
  explicit PoissonTable(Rational rate);

  std::uint64_t sample(WordReader& words) const;

  // The table covers first() … first() + size() − 1; probability(i) is that of first() + i, rounded
  // to binary64.
  std::uint64_t first() const noexcept { return first_; }
  std::size_t size() const noexcept { return cumulative_.size(); }
  double probability(std::size_t i) const noexcept;

 private:
  using Weight = std::array<std::uint64_t, 4>;  // 256 bits, most significant word first
  std::uint64_t first_ = 0;
  std::vector<Weight> cumulative_;
};

// Skellam: the difference of two independent Poisson(variance / 2), symmetric on the integers, with
// the given variance in squared grid units. The total variation distance from the Skellam law is at
// most 2^-169 per coordinate; n coordinates charge at most n·2^-169·(1 + e^ε) to δ.
// variance: numerator ≤ 2^24 and denominator ≤ 2^23, otherwise kInvalidDpConfig and nothing is
// written. One index per coordinate (discrete_indices). The accountant needs the L1, L2 and L∞
// sensitivities.
void skellam(const Generator& generator, const Position& position, Rational variance,
             std::span<std::int64_t> out, int threads = 1);

}  // namespace discreet::random
