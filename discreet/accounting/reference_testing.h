#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "discreet/accounting/composition.h"

// Slow, direct evaluations of hockey-stick divergences in long double with the platform's
// functions. They share no code with the tested functions.
namespace discreet::accounting::reference {

inline long double upper_tail(long double z) { return std::erfc(z / std::sqrt(2.0L)) / 2; }

inline long double loss(long double x, long double q, long double sigma) {
  return std::log1p(q * std::expm1((2 * x - 1) / (2 * sigma * sigma)));
}

// One step, for any real epsilon.
inline long double delta_one(long double q, long double sigma, Direction direction,
                             long double epsilon) {
  const auto remove = [&](long double e) -> long double {
    const long double y = std::expm1(e) / q;
    if (y <= -1) return -std::expm1(e);
    const long double x = sigma * sigma * std::log1p(y) + 0.5L;
    return q * upper_tail((x - 1) / sigma) - (q + std::expm1(e)) * upper_tail(x / sigma);
  };
  if (direction == Direction::kRemove) return remove(epsilon);
  return -std::expm1(epsilon) + std::exp(epsilon) * remove(-epsilon);
}

// `count` steps, by integrating over the outcomes of all but the last: nodes^(count-1) evaluations.
inline long double delta_many(long double q, long double sigma, Direction direction, int count,
                              long double epsilon, int nodes = 1500) {
  if (count == 1) return delta_one(q, sigma, direction, epsilon);
  const long double low = -12 * sigma, high = 1 + 12 * sigma, dx = (high - low) / nodes;
  long double total = 0;
  for (int i = 0; i < nodes; ++i) {
    const long double x = low + (i + 0.5L) * dx;
    const long double l = loss(x, q, sigma);
    const long double density = std::exp(-x * x / (2 * sigma * sigma)) /
                                (sigma * std::sqrt(2 * 3.14159265358979323846L)) * dx;
    const bool remove = direction == Direction::kRemove;
    const long double weight = remove ? density * std::exp(l) : density;
    if (weight < 1e-25L) continue;
    total +=
        weight * delta_many(q, sigma, direction, count - 1, epsilon - (remove ? l : -l), nodes);
  }
  return total;
}

// The inverse of a non-increasing function at `target`, in [0, high].
template <class F>
double solve(F&& decreasing, long double target, long double high) {
  long double low = 0;
  for (int i = 0; i < 60; ++i) {
    const long double middle = (low + high) / 2;
    (decreasing(middle) > target ? low : high) = middle;
  }
  return static_cast<double>((low + high) / 2);
}

}  // namespace discreet::accounting::reference
