#pragma once
// Stands in for discreet/numerics until that room is on this branch.
#include <cmath>
namespace discreet::numerics {
inline double exp(double x) noexcept { return std::exp(x); }
inline double expm1(double x) noexcept { return std::expm1(x); }
inline double log(double x) noexcept { return std::log(x); }
inline double log1p(double x) noexcept { return std::log1p(x); }
inline double sin(double x) noexcept { return std::sin(x); }
inline double cos(double x) noexcept { return std::cos(x); }
inline double erfc(double x) noexcept { return std::erfc(x); }
}  // namespace discreet::numerics
