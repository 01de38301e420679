#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
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

// The two trials at which a search for the largest whole number ended; x is the number.
template <class Value>
struct Most {
  std::optional<Trial<Value>> kept;    // the largest number that was tried and keeps the condition
  std::optional<Trial<Value>> broken;  // the smallest that was tried and does not
};

// The largest whole number in [1, most] at which a monotone condition holds (it also holds for
// smaller ones), starting at `start`. evaluate(n) returns a Trial with x = n, whose height
// increases in n. `kept` is empty if not even 1 keeps the condition, `broken` if `most` does.
// Otherwise they are neighbours; beyond 10^9, they are within 1e-9 relative. Both are evaluated
// trials, so a condition that is not exactly monotone costs sharpness, not soundness. most: at most
// 2^52.
template <class Value, class F>
Most<Value> most_keeping(F&& evaluate, std::uint64_t start, std::uint64_t most,
                         int max_evaluations) {
  Most<Value> out;
  int evaluations = 0;
  const auto trial = [&](double x) {
    ++evaluations;
    const Trial<Value> now = evaluate(static_cast<std::uint64_t>(x));
    (now.height <= 0 ? out.kept : out.broken) = now;
  };
  const auto end = static_cast<double>(most);
  const auto log_height = [](const Trial<Value>& at) { return std::clamp(at.height, -50.0, 50.0); };
  double x = std::clamp(static_cast<double>(start), 1.0, end);
  while (evaluations < max_evaluations) {
    trial(x);
    if (out.kept && out.broken) break;
    if (out.kept ? x >= end : x <= 1) return out;
    // Between the square root of the number and the number itself epsilon grows; beyond either.
    const double jump =
        std::max(2.0, numerics::exp(std::min(
                          2.1 * std::abs(log_height(out.kept ? *out.kept : *out.broken)), 4.0)));
    x = std::clamp(std::round(out.kept ? x * jump : x / jump), 1.0, end);
  }
  const auto is_closed = [&] {
    return out.broken->x <= std::max(out.kept->x * (1 + 1e-9), out.kept->x + 1);
  };
  while (out.kept && out.broken && !is_closed() && evaluations < max_evaluations) {
    const double low = numerics::log(out.kept->x), high = numerics::log(out.broken->x);
    const double below = log_height(*out.kept), above = log_height(*out.broken);
    const bool halves = evaluations % 3 == 2 || below < -2 || above > 2 || !(above > below);
    const double share = halves ? 0.5 : -below / (above - below);
    const double aim = std::floor(numerics::exp(low + share * (high - low)));
    trial(std::clamp(aim, out.kept->x + 1, out.broken->x - 1));
  }
  return out;
}

}  // namespace discreet::accounting
