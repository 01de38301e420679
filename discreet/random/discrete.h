#pragma once

#include <cstdint>
#include <span>

#include "discreet/random/generator.h"

namespace discreet::random {

// A positive rational number. Both parts are in {1 … 2^53}; it need not be in lowest terms.
struct Rational {
  std::uint64_t numerator = 1;
  std::uint64_t denominator = 1;

  // The smallest such number >= x: a noise scale is never rounded down. It equals x if the binary
  // fraction of x fits, which is the case for every x >= 1/2; otherwise it is the next multiple of
  // 2^-53. Throws kNanInSigma if x is not finite, kInvalidDpConfig unless 0 < x ≤ 2^53.
  static Rational at_least(double x);
};

// Discrete families on the integers, sampled exactly by rejection in integer arithmetic.
// Proof: discrete.md
//
// For all functions below: out[i] is the value of coordinate position.coordinate + i. It depends
// only on the generator and that coordinate, not on threads ≥ 1 or on how a range is divided into
// calls. Each coordinate consumes one index, however many candidates are rejected
// (discrete_indices). A parameter out of range throws kInvalidDpConfig before anything is written.

// The indices that n coordinates consume.
constexpr std::uint64_t discrete_indices(std::uint64_t n) noexcept { return n; }

// Discrete Laplace: P(y) ∝ exp(−|y| / scale), with `scale` in grid units. Canonne, Kamath, Steinke
// (2020), algorithm 2. Account it with the L1 sensitivity in grid units.
void discrete_laplace(const Generator& generator, const Position& position, Rational scale,
                      std::span<std::int64_t> out, int threads = 1);

// Discrete Gaussian: P(y) ∝ exp(−y² / (2·variance)), with `variance` in squared grid units.
// Canonne, Kamath, Steinke (2020), algorithm 3. Its true variance is at most `variance`. It is not
// a rounded Gaussian: account it by zCDP (Δ²/(2·variance)), not by the PLD of the Gaussian.
void discrete_gaussian(const Generator& generator, const Position& position, Rational variance,
                       std::span<std::int64_t> out, int threads = 1);

// Rounded Gaussian: the integer nearest to stddev · N(0, 1), with `stddev` in grid units. This is
// post-processing of a true Gaussian, so the accounting of the Gaussian holds for it. Karney:
// "Sampling exactly from the normal distribution", ACM TOMS 42 (2016), algorithm N, then as many
// further digits as the rounding needs.
void rounded_gaussian(const Generator& generator, const Position& position, Rational stddev,
                      std::span<std::int64_t> out, int threads = 1);

}  // namespace discreet::random
