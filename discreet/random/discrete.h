#pragma once

#include <cstdint>
#include <span>

#include "discreet/random/generator.h"

namespace discreet::random {

// A positive rational number. Both parts in {1 … 2^53}; need not be in lowest terms.
struct Rational {
  std::uint64_t numerator = 1;
  std::uint64_t denominator = 1;

  // The least such number that is not below the binary64 value x: x itself when its binary
  // fraction fits, which it does from 1/2 up, else the next multiple of 2^-53. A noise scale is
  // never rounded down. Throws kNanInSigma for a non-finite x, kInvalidDpConfig unless
  // 0 < x ≤ 2^53.
  static Rational at_least(double x);
};

// Discrete families on the integers, sampled exactly by rejection in integer arithmetic.
// Proof: discrete.md
//
// Common to all: out[i] is the value of coordinate position.coordinate + i; it depends on the
// generator and that coordinate only, not on threads ≥ 1 or on how a range is cut. One index per
// coordinate, whatever is rejected (discrete_indices). Parameters out of range throw
// kInvalidDpConfig before anything is written.

// The indices that n coordinates consume.
constexpr std::uint64_t discrete_indices(std::uint64_t n) noexcept { return n; }

// Discrete Laplace: P(y) ∝ exp(−|y| / scale).
// Canonne, Kamath, Steinke (2020), algorithm 2. Its L1 sensitivity is in grid units.
void discrete_laplace(const Generator& generator, const Position& position, Rational scale,
                      std::span<std::int64_t> out, int threads = 1);

// Discrete Gaussian: P(y) ∝ exp(−y² / (2·variance)), with `variance` in squared grid units.
// Canonne, Kamath, Steinke (2020), algorithm 3. Its true variance is at most `variance`, and it is
// not a rounded Gaussian: account it by zCDP (Δ²/(2·variance)), not by the Gaussian's PLD.
void discrete_gaussian(const Generator& generator, const Position& position, Rational variance,
                       std::span<std::int64_t> out, int threads = 1);

// Rounded Gaussian: the integer nearest to stddev · N(0, 1), with `stddev` in grid units. This is
// post-processing of a true Gaussian, so the Gaussian's own accounting holds for it.
// Karney: "Sampling exactly from the normal distribution", ACM TOMS 42 (2016), algorithm N, then
// as many further digits as the rounding needs.
void rounded_gaussian(const Generator& generator, const Position& position, Rational stddev,
                      std::span<std::int64_t> out, int threads = 1);

}  // namespace discreet::random
