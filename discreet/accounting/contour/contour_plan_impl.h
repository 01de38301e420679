#pragma once

#include <optional>

#include "discreet/accounting/contour/contour_totals_impl.h"

namespace discreet::accounting::contour {

// A point of the curve delta(epsilon), known or estimated.
struct Point {
  double epsilon;
  double log_delta;
};

// Estimates the missing coordinate from the best Chernoff bound, corrected at the saddle.
std::optional<Point> estimate_from_delta(Totals& totals, double log_delta, double relative);
std::optional<Point> estimate_from_epsilon(Totals& totals, double epsilon, double relative);

// A contour, for its mass only, whose Chernoff bound of delta(epsilon) should be below
// exp(log_delta), if there is one. epsilon >= 0.
std::optional<Contour> contour_for_bound(Totals& totals, double epsilon, double log_delta);

// A contour on which delta near the point should come out within a few times `relative`.
// Nothing depends on the choice but width and cost. `effort` > 0 asks for a finer one.
std::optional<Contour> choose_contour(Totals& totals, const Point& point, double relative,
                                      int effort);

}  // namespace discreet::accounting::contour
