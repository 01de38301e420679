#pragma once

#include <cstddef>

namespace discreet::accounting::contour {

// Lengths are multiples of this; pad with zeros.
inline constexpr std::size_t kWaveBlock = 32;

// The sum in one fixed order on every processor: eight lanes, each of which adds four numbers of a
// block of 32 and then adds that to its total; finally the lanes are added from first to last.
double blocked_sum(const double* values, std::size_t padded) noexcept;

struct WaveSum {
  double re, im;
};

// Complex numbers, one per node.
template <class Number>
struct Waves {
  Number* re;
  Number* im;
};

// to = from * turn, element by element, and then the blocked sums of both parts. `to` may be
// `from`.
WaveSum turn_and_sum(Waves<const double> from, Waves<const double> turn, Waves<double> to,
                     std::size_t padded) noexcept;

// waves *= weight, element by element, and then the blocked sums of both parts.
WaveSum weigh_and_sum(Waves<double> waves, const double* weight, std::size_t padded) noexcept;

// The sum of weights[i] * (1 - env(half_lengths[i] * t)), where env(x) >= |sin(y)/y| for all y >= x
// (contour.md, Truncation). size is a multiple of 8: pad with zero weights.
double missing_sum(const double* weights, const double* half_lengths, std::size_t size,
                   double t) noexcept;

// A bound on the error of a blocked sum in units of u times the sum of magnitudes: 3 in a block,
// one per block, 7 across the lanes (adding to zero is exact).
inline double summation_error(std::size_t padded) noexcept {
  const std::size_t blocks = padded / kWaveBlock;
  return 3 + static_cast<double>(blocks) + 7;
}

}  // namespace discreet::accounting::contour
