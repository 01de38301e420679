#pragma once

#include <cstddef>
#include <cstdint>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// Proof: transform.md

// delta(epsilon) and epsilon(delta) of a composition in one direction, certified from both sides.
// Every step's loss is enclosed by two laws on a grid (loss_grid_impl.h); the laws are tilted and
// convolved by the discrete Fourier transform; the effects of the grid window, wrap-around and
// rounding on delta are bounded and charged. Supports every composition; the contour is faster and
// narrower where it applies.

struct TransformResult {
  Interval value;          // contains the true epsilon (or delta); upper may be infinite
  double grid = 0;         // the final loss grid h
  std::size_t length = 0;  // points of the transform
  bool reached = false;    // the requested width was reached within the cost limit
};

// epsilon(delta) = inf{epsilon >= 0 : delta(epsilon) <= delta}.
//   steps: at least one
//   delta: in (0, 1)
//   width: requested value.upper - value.lower, > 0, in units of epsilon. The cost grows as its
//          inverse square root. If a transform of 2^21 points does not reach it, the interval is
//          wider but still sound, and `reached` is false.
//   group: number of records that are all present or all absent (group_privacy.md), in [1, 2^32]
TransformResult transform_epsilon(const Composition& steps, Direction direction, double delta,
                                  double width, std::uint64_t group = 1);

// delta(epsilon), the hockey-stick divergence.
//   epsilon:        >= 0
//   relative_width: requested (upper - lower) / upper, in (0, 1)
TransformResult transform_delta(const Composition& steps, Direction direction, double epsilon,
                                double relative_width, std::uint64_t group = 1);

}  // namespace discreet::accounting
