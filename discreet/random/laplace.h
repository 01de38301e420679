#pragma once

#include <cstdint>
#include <span>

#include "discreet/random/generator.h"

namespace discreet::random {

// Laplace noise of density exp(−|x|/scale)/(2·scale) in binary64: ± scale · (−ln u), with u drawn
// as for the Gaussian (64 bits; 128 bits below 2^-11). The tail reaches 88 scales. A coordinate
// differs from a Laplace variable rounded in its last bits with probability at most 2^-127. The
// sensitivity is L1: clip in the L1 norm. As for the Gaussian, the low-order bits are not covered;
// discrete_laplace covers them.
// Proof: gaussian.md
//   scale     ≥ 0, finite. For errors, position and threads see gaussian.h.
// One index per coordinate.
constexpr std::uint64_t laplace_indices(std::uint64_t n) noexcept { return n; }

void fill_laplace(const Generator& generator, const Position& position, double scale,
                  std::span<double> out, int threads = 1);
void add_laplace(const Generator& generator, const Position& position, double scale,
                 std::span<double> x, int threads = 1);

}  // namespace discreet::random
