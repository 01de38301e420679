#pragma once

#include <optional>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// delta(epsilon) of one direction by the same integral as contour.h, but written apart from it: in
// extended precision, over the whole line of outcomes, on its own contour, with no bound of any
// kind. Two evaluations with different steps must agree.
struct Brute {
  long double delta;
  long double disagreement;  // relative, between the two evaluations
};

// Empty if it would take more than `work` complex multiplications.
std::optional<Brute> brute_delta(const Composition& composition, Direction direction,
                                 double epsilon, double delta_hint, double work = 4e7);

}  // namespace discreet::accounting
