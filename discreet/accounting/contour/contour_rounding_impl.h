#pragma once

#include <cmath>

#include "discreet/numerics/elementary.h"

namespace discreet::accounting::contour {

// u, the unit round-off of binary64. Elementary functions are within 1 ulp, that is 2u relative.
inline constexpr double kUnit = 0x1p-53;

// Auxiliary scalars (tails, images, strips, layers) result from fewer than 2^10 operations on terms
// of one sign, each within 2^-50 relative: a factor 1 +- 2^-38 turns the result into a bound.
inline double up(double positive) noexcept { return positive * (1 + 0x1p-38); }
inline double down(double positive) noexcept { return positive * (1 - 0x1p-38); }

// exp of an exponent that was itself rounded at most 2^8 times; 2^-43 relative covers the rounding.
inline double exp_up(double x) noexcept {
  return numerics::exp(x + 0x1p-43 * (1 + std::abs(x))) * (1 + 0x1p-50);
}
inline double exp_down(double x) noexcept {
  return numerics::exp(x - 0x1p-43 * (1 + std::abs(x))) * (1 - 0x1p-50);
}

}  // namespace discreet::accounting::contour
