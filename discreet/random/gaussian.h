#pragma once

#include <cstdint>
#include <span>

#include "discreet/random/generator.h"

namespace discreet::random {

// Gaussian noise N(0, stddev²). The value of a coordinate depends only on the generator and the
// position: the bits are the same on every machine, for any number of threads, and however a range
// is divided into calls.
// Proof: gaussian.md (distance to the ideal law, and what is charged to δ)
//
// binary64: Box–Muller on 64-bit uniforms; uniforms below 2^-11 are drawn with 128 bits.
//   Coordinates 2k and 2k+1 are √(−2 ln u)·cos φ and √(−2 ln u)·sin φ of one index. The tail
//   reaches 13.3 σ. A pair differs from a Gaussian rounded in its last bits with probability at
//   most 2^-127, so n coordinates charge at most n·2^-127·(1 + e^ε) to δ. As with all
//   floating-point noise, the low-order bits of the sum are not covered; the discrete families
//   cover them.
// binary32: the functions below form x + stddev·z in binary64 and round it once.
//
// Common to all functions:
//   position  the tensor, and the coordinate of the first element of the span.
//   stddev    ≥ 0, finite. A non-finite value throws kNanInSigma and a negative one
//             kInvalidDpConfig, before anything is written; 0 writes zeros (fill) or leaves the
//             values unchanged (add).
//   threads   ≥ 1, the number of threads.

// The indices that n coordinates of a tensor consume.
constexpr std::uint64_t gaussian_indices(std::uint64_t n) noexcept { return n / 2 + n % 2; }

// out[i] = stddev · z.
void fill_gaussian(const Generator& generator, const Position& position, double stddev,
                   std::span<double> out, int threads = 1);
void fill_gaussian(const Generator& generator, const Position& position, double stddev,
                   std::span<float> out, int threads = 1);

// x[i] += stddev · z, without a temporary array of the size of x.
void add_gaussian(const Generator& generator, const Position& position, double stddev,
                  std::span<double> x, int threads = 1);
void add_gaussian(const Generator& generator, const Position& position, double stddev,
                  std::span<float> x, int threads = 1);

// Native binary32: all arithmetic in binary32 from 32-bit uniforms, four coordinates per index.
// Faster but weaker: the tail ends at 6.8 σ, which costs δ depending on σ, the number of
// coordinates d and the number of steps T (3.8e-5 at d=1e7, σ=0.6, qT=100). Certified runs reject
// it; use it for initialisation, tests and public randomness.
constexpr std::uint64_t gaussian_native32_indices(std::uint64_t n) noexcept {
  return n / 4 + (n % 4 != 0);
}
void fill_gaussian_native32(const Generator& generator, const Position& position, float stddev,
                            std::span<float> out, int threads = 1);

}  // namespace discreet::random
