#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "discreet/numerics/strict_arithmetic.h"

// Steps between neighbouring binary64 numbers, to turn a result with a known error into a bound.
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

// An upper bound of the exact value that x approximates within `ulps` ulp: at least x + ulps *
// ulp(x). Rounds up. If x overflowed to +inf it stays +inf; round_up(0, ulps) is at least ulps *
// 2^-1074. ulps >= 0.
constexpr double round_up(double x, int ulps) noexcept {
  // The ulp is that of the exact value. If a power of two lies between it and x, that ulp is two
  // steps of x, so step twice as often.
  for (int i = 0; i < 2 * ulps; ++i) x = next_up(x);
  return x;
}

// A lower bound of the exact value that x approximates within `ulps` ulp. Rounds down. An x of
// +inf, which may represent any value from the largest double on, becomes finite if ulps > 0.
constexpr double round_down(double x, int ulps) noexcept { return -round_up(-x, ulps); }

}  // namespace discreet::numerics
