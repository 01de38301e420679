#pragma once

#include <optional>

#include "discreet/accounting/contour/contour_totals_impl.h"

namespace discreet::accounting::contour {

// A point of the curve delta(epsilon), known or estimated.
struct Point {
  double epsilon;
  double log_delta;
};

// Estimates the missing coordinate from the best Chernoff bound with a saddle-point correction.
std::optional<Point> estimate_from_delta(Totals& totals, double log_delta, double relative);
std::optional<Point> estimate_from_epsilon(Totals& totals, double epsilon, double relative);

// A mass-only contour whose Chernoff bound of delta(epsilon) should be below exp(log_delta); empty
// if there is none. epsilon >= 0.
std::optional<Contour> contour_for_bound(Totals& totals, double epsilon, double log_delta);

// A contour on which delta near the point should have an error of a few times `relative`. The
// choice affects only width and cost. `effort` > 0 requests a finer one.
std::optional<Contour> choose_contour(Totals& totals, const Point& point, double relative,
                                      int effort);

}  // namespace discreet::accounting::contour
