#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "discreet/numerics/strict_arithmetic.h"

// Steps along the binary64 numbers, to turn a result of known error into a bound.
namespace discreet::numerics {

// The next number above x. next_up(-0) = next_up(+0) = 2^-1074, next_up(-2^-1074) = -0,
// next_up(max) = +inf, next_up(+inf) = +inf, next_up(-inf) = -max; NaN stays NaN.
constexpr double next_up(double x) noexcept {
  if (x != x || x == std::numeric_limits<double>::infinity()) return x;
  if (x == 0) return std::numeric_limits<double>::denorm_min();
  const auto bits = std::bit_cast<std::uint64_t>(x);
  return std::bit_cast<double>(x > 0 ? bits + 1 : bits - 1);
}

// The next number below x: -next_up(-x).
constexpr double next_down(double x) noexcept { return -next_up(-x); }

// At least x + ulps * ulp(x), hence at least the exact value that x approximates to so many ulp.
// Rounds up: never below the bound. An x that overflowed to +inf stays +inf; round_up(0, ulps) is
// ulps * 2^-1074. ulps >= 0.
constexpr double round_up(double x, int ulps) noexcept {
  // The ulp is that of the exact value, which may lie across a power of two from x: its ulp is
  // then twice that of a step, so step twice as often.
  for (int i = 0; i < 2 * ulps; ++i) x = next_up(x);
  return x;
}

// At most the exact value that x approximates to so many ulp. An x of +inf, which may stand for
// any value from max on, becomes finite when ulps > 0.
constexpr double round_down(double x, int ulps) noexcept { return -round_up(-x, ulps); }

}  // namespace discreet::numerics
