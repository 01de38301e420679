#pragma once

// Stand-in for discreet/numerics/elementary.h while that room is being built.
#include <cmath>
#include <cstddef>
#include <span>

namespace discreet::numerics {

inline double exp(double x) noexcept { return std::exp(x); }
inline double expm1(double x) noexcept { return std::expm1(x); }
inline double log(double x) noexcept { return std::log(x); }
inline double log1p(double x) noexcept { return std::log1p(x); }
inline double sin(double x) noexcept { return std::sin(x); }
inline double cos(double x) noexcept { return std::cos(x); }
inline double atan2(double y, double x) noexcept { return std::atan2(y, x); }
inline double erfc(double x) noexcept { return std::erfc(x); }
inline double log_erfc(double x) noexcept {
  return x < 25 ? std::log(std::erfc(x)) : -x * x - std::log(x * 1.7724538509055159);
}
#define DISCREET_SPAN(f)                                                              \
  inline void f(std::span<const double> in, std::span<double> out) noexcept {         \
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = f(in[i]);                    \
  }
DISCREET_SPAN(exp)
DISCREET_SPAN(expm1)
DISCREET_SPAN(log)
DISCREET_SPAN(log1p)
DISCREET_SPAN(sin)
DISCREET_SPAN(cos)
#undef DISCREET_SPAN

}  // namespace discreet::numerics
