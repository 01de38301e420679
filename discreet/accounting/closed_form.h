#pragma once

#include <optional>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// Proof: transform/transform.md

// Compositions whose hockey-stick divergence is a difference of two normal tails: a single Gaussian
// step, Poisson-subsampled or not, and any number of full-batch steps, which equal one Gaussian
// with 1/sigma^2 = sum count/sigma_i^2. Both functions return nullopt for every other composition.
// The intervals contain the exact value; their relative width is about 1e-13.

// delta(epsilon) for epsilon >= 0.
std::optional<Interval> closed_form_delta(const Composition& steps, Direction direction,
                                          double epsilon);

// epsilon(delta) = inf{epsilon >= 0 : delta(epsilon) <= delta} for delta in (0, 1).
std::optional<Interval> closed_form_epsilon(const Composition& steps, Direction direction,
                                            double delta);

}  // namespace discreet::accounting
