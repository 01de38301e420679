#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "discreet/accounting/composition.h"

namespace discreet::accounting::transform_impl {

// Proof: transform.md

// How the transform chooses tilt, window and grid. The first four functions return bounds; the
// others affect only the width of a result, never its correctness.

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kMaxLength = 0x1p20;  // points of a transform
inline constexpr double kMaxLoss = 600;       // e^{loss} must stay far from overflow

// log B(c), B(c) = sup_{y > 0} (1 - e^{-y}) e^{-c y} = c^c / (1 + c)^{1 + c}, within 1e-9 for c <
// 1e9.
double log_kernel(double c);

// An upper bound of the finite losses, and bounds of the mass of infinite loss from explicit steps.
double largest_loss(const Composition& steps, Direction direction, std::uint64_t group);
Interval failure_mass(const Composition& steps);

// Upper bound of the Euclidean norm of m -> e^{-c h m} min(1, h (m + 1)), m >= 0.
double weight_norm(double c, double h);

// Log-moments of the composition at a table of orders, with outcomes beyond `tail` cut off.
struct Table {
  std::vector<double> order;     // ascending, includes zero
  std::vector<double> cumulant;  // of the whole composition
  double steps = 0;
  double max_loss = 0;
};

Table make_table(const Composition& steps, Direction direction, double tail, std::uint64_t group);

// The smallest epsilon, or log delta, that the table's Chernoff bounds give; and the order that
// attains it.
double chernoff_epsilon(const Table& table, double log_delta);
double chernoff_log_delta(const Table& table, double epsilon);
double sharpness_at(const Table& table, double epsilon);

struct Plan {
  double tilt = 0;           // order of the tilt
  double left = 0;           // order that bounds the tilted tail below the window
  double right = 0;          // order that bounds the tilted tail above it
  double low = 0, high = 0;  // window of the composed loss
};

// The tilt with the narrowest window if both tilted tails may cost `share` of delta and round-off
// less than `noise_share`. tilt is 0 if there is none.
Plan make_plan(const Table& table, double epsilon, double log_delta, double share,
               double noise_share, double h);

// The largest double <= h with at most 20 significant bits: its multiples are exact.
double with_20_bits(double h);

// The grid whose laws differ by about `width` in epsilon, at most `coarsest`.
double grid_for(const Composition& steps, const Table& table, double sharpness, double width,
                double coarsest);

// The number of Gaussian steps, at least 1.
double total_steps(const Composition& steps);

}  // namespace discreet::accounting::transform_impl
