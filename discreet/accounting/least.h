#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "discreet/numerics/elementary.h"
#include "discreet/numerics/roots.h"

namespace discreet::accounting {

// One evaluation of a condition, which holds where height <= 0.
template <class Value>
struct Trial {
  double x;
  double height;  // decreases in x; +inf if unknown
  Value value;    // the result at x
};

// The smallest x in [low, high] at which a monotone condition holds (it also holds for larger x),
// within `tolerance` relative, starting at `start`. evaluate(x) returns a Trial. The result is
// always an evaluated trial, so a condition that is not exactly monotone costs sharpness, not
// soundness. If no trial satisfies the condition within max_evaluations, the last trial is
// returned, with height > 0.
template <class Value, class F>
Trial<Value> least_keeping(F&& evaluate, double start, double low, double high, double tolerance,
                           int max_evaluations = 30) {
  std::vector<Trial<Value>> trials;
  const auto trial = [&](double x) {
    for (const auto& each : trials) {
      if (each.x == x) return each;
    }
    trials.push_back(evaluate(x));
    return trials.back();
  };
  std::optional<Trial<Value>> good, bad;
  double x = std::clamp(start, low, high), factor = 1.1;
  for (;;) {
    const Trial<Value> now = trial(x);
    (now.height <= 0 ? good : bad) = now;
    const bool at_end = good ? x <= low : x >= high;
    if ((good && bad) || at_end || int(trials.size()) >= max_evaluations) break;
    x = std::clamp(good ? x / factor : x * factor, low, high);
    factor = std::min(factor * factor, 16.0);
  }
  if (!good) return *bad;
  if (!bad) return *good;
  const auto height = [&](double log_x) {
    // log and exp do not round-trip: return the ends themselves.
    const double at = log_x == numerics::log(good->x)  ? good->x
                      : log_x == numerics::log(bad->x) ? bad->x
                                                       : numerics::exp(log_x);
    const Trial<Value> now = trial(at);
    if (now.height <= 0 && now.x < good->x) good = now;
    return now.height;
  };
  numerics::find_root(height, numerics::log(bad->x), numerics::log(good->x),
                      {tolerance, 0, std::max(3, max_evaluations - int(trials.size()) + 2)});
  return *good;
}

}  // namespace discreet::accounting
