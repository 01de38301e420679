#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// Bounds on one or more quantities, computed on one grid.
struct GridBounds {
  std::vector<Interval> intervals;
  double excess;  // the largest ratio of a width to the requested width
};

// Widths are relative to at least this epsilon.
inline constexpr double kSmallestEpsilonScale = 0.1;

inline double epsilon_excess(Interval e, double relative_width) {
  const double scale = std::max(std::isfinite(e.upper) ? e.upper : 0.0, kSmallestEpsilonScale);
  return (e.upper - e.lower) / (relative_width * scale);
}

// A step of 17 significant bits, so that its multiples below 2^36 are exact in binary64.
inline double short_step(double step) {
  const int exponent = std::ilogb(step);
  return std::ldexp(std::floor(std::ldexp(step, 16 - exponent)), exponent - 16);
}

// Repeats `bounds(step)` -> GridBounds on finer grids until the requested widths are reached.
// Widths are of second order in the step, so one coarse pass determines the step needed. Returns
// the intersection of all passes, because each contains the true value.
template <class Bounds>
std::vector<Interval> refine(double step, double finest, Bounds&& bounds) {
  GridBounds best = bounds(short_step(step));
  int stalls = 0;
  for (int pass = 1; pass < 5 && best.excess > 1 && step > finest; ++pass) {
    step = std::max(finest, step * std::clamp(0.9 / std::sqrt(best.excess), 0.05, 0.8));
    GridBounds next = bounds(short_step(step));
    for (std::size_t i = 0; i < next.intervals.size(); ++i) {
      next.intervals[i].lower = std::max(next.intervals[i].lower, best.intervals[i].lower);
      next.intervals[i].upper = std::min(next.intervals[i].upper, best.intervals[i].upper);
    }
    // No gain twice in a row: a charge or the limits of arithmetic determine the width, not the
    // step.
    const int more = std::isfinite(next.excess) ? 1 : 2;
    stalls = next.excess < 0.95 * best.excess ? 0 : stalls + more;
    best = std::move(next);
    if (stalls >= 2) break;
  }
  return best.intervals;
}

}  // namespace discreet::accounting
