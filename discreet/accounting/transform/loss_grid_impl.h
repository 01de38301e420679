#pragma once

#include <cstdint>
#include <vector>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// Proof: transform.md

constexpr std::int64_t kOffsetUnits = 4096;
// Indices beyond this are not exact in binary64.
constexpr double kMostIndex = 0x1p52;

// Thrown where a setting needs a grid that memory or std::int64_t does not hold. The callers then
// answer with the bound that they have.
struct GridTooLarge {};

// The privacy loss of one step, enclosed by two laws on the grid {i h + offset}.
//
// Let (A, B) be the step's pair in the given direction: (P, Q) for remove, (Q, P) for add; and let
// L = log dA/dB under A. Each atom has an A-mass; its B-mass is the A-mass times e^{-loss}. Then
// for every number of steps, every mixture of such steps and every epsilon,
//     delta(lower laws) <= delta(true laws) <= delta(upper laws).
// Both laws have an error of second order in h: `upper` spreads each cell to its two ends and
// preserves the A- and B-mass (connect the dots); `lower` merges neighbours into groups whose loss
// is a grid point (data processing). All rounding errors are charged: masses of `upper` are never
// too small, those of `lower` never too large.
struct LossGrid {
  std::int64_t offset = 0;          // atom k has the loss index[k] h + offset h / kOffsetUnits
  std::vector<std::int64_t> index;  // unsorted; an index may occur twice
  std::vector<double> upper;        // A-mass, rounded up
  std::vector<double> lower;        // A-mass, rounded down; same length
  double infinity_upper = 0;        // A-mass of infinite loss: truncated tails, explicit deltas
  double infinity_lower = 0;
};

// One Poisson-subsampled (q < 1) or full-batch (q = 1) Gaussian step, for a group of records that
// are all present or all absent.
//   q:     rate in (0, 1]
//   group: number of records in the group, in [1, 2^32]
//   sigma: noise multiplier, > 0; the losses within `tail` must stay below 600 in magnitude
//   h:     grid spacing, > 0, with at most 20 significant bits so that grid losses are exact
//   tail:  A-mass, > 1e-300, that may be moved to infinite loss (upper) or dropped (lower)
//   orders: tilts, > 0, at which the law will be used: cells without weight there become wide
// Throws GridTooLarge above two million cells.
LossGrid gaussian_grid(double q, double sigma, Direction direction, double h, double tail,
                       Interval orders, std::uint64_t group = 1);

// One mechanism of which only (epsilon, delta) is known. The worst case has losses -epsilon and
// +epsilon, and infinite loss with mass delta (Kairouz, Oh and Viswanath 2015). If epsilon is not
// on the grid, `lower` uses epsilon rounded down to the grid.
LossGrid explicit_grid(double epsilon, double delta, double h);

}  // namespace discreet::accounting
