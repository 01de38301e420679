#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "discreet/numerics/elementary.h"
#include "discreet/numerics/roots.h"

namespace discreet::accounting {

// A point where a condition was evaluated: it is kept where height <= 0.
template <class Value>
struct Trial {
  double x;
  double height;  // falls in x; +inf where nothing is known
  Value value;    // what was found out at x
};

// The least x in [low, high] that keeps a condition which larger x keep too, within `tolerance`
// relative, starting at `start`. evaluate(x) returns a Trial; nothing is returned that was not
// evaluated, so a condition that is not quite monotone costs sharpness and not truth. If no trial
// keeps it within the evaluations allowed, the last trial is returned, with height > 0.
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
    // The ends come back through exp only as themselves.
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
