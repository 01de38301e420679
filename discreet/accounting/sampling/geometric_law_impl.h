#pragma once

#include <cstdint>
#include <vector>

namespace discreet::accounting {

// Laws of positive random variables on a geometric grid, rounded in convex order.
//
// X is below Y in put order if E(k - X)+ <= E(k - Y)+ for every k. Sums of independent variables
// and products of independent non-negative variables preserve the order.
//
//   kUp    the represented variable Y is above X: E Y = E X - lost, and P[Y = 0] <= zero.
//   kDown  the represented measure is below a part of the law of X in convex order: E f(Y) <=
//          E f(X) for every convex f >= 0. zero = lost = 0.
//
// Both roundings preserve the mean inside each cell, so their error is of second order in the step.
// Proof: balls_and_bins.md
enum class Rounding { kUp, kDown };

// A measure with mass[i] at e^{(first + i) step}, and `zero` at 0. Arithmetic errors are included:
// there is an exact measure m above X (below, for kDown), whose atoms lie at e^{(first + i) step}
// (1 + eta), |eta| <= position_error, and mass[i] >= m[i] (1 - mass_error) for kUp, |mass[i] -
// m[i]| <= mass_error m[i] for kDown.
struct GeometricLaw {
  double step = 0;         // at most 17 significant bits, so that i * step is exact
  std::int64_t first = 0;  // |first + i| < 2^36
  std::vector<double> mass;
  double zero = 0;
  double lost = 0;
  double mass_error = 0;
  double position_error = 0;
};

// Cell c extends from e^{c step} to e^{(c+1) step}; low[c] and high[c] are its mass, split between
// the two ends so that the mean is preserved. c counts from `first`.
struct Cells {
  double step = 0;
  std::int64_t first = 0;
  std::vector<double> low;
  std::vector<double> high;
};

// The law of the cells: for kUp on the grid of the cells, for kDown on every second point of it.
// The errors are those of the cells (mass: relative, two-sided for kDown; position: relative).
GeometricLaw round_cells(const Cells& cells, double mass_error, double position_error,
                         Rounding rounding);

// The law of V = exp(Z / sigma - 1 / (2 sigma^2)), Z standard normal, so that E V = 1.
// cut: mass below the grid and mean above it, each in (0, 1e-3].
GeometricLaw round_lognormal(double sigma, double step, double cut, Rounding rounding);

// Which differences of indices fall in which cell when two laws of one step are added. It depends
// only on the steps, so all sums of one level share it.
struct SumPlan {
  struct Block {
    std::int64_t cell;  // the sum of indices j and j - d lies in cell j * ratio + cell
    std::size_t first;  // for all d in [first, first + 2^level)
    int level;
    double low;   // weights towards the two ends of the cell: for the window's sum of masses,
    double high;  // and for its two sums of distances (see Windows)
    double slope;
  };
  double step;                // of the summands
  std::int64_t ratio;         // step / (step of the cells), a power of two
  std::size_t reach;          // d < reach
  std::vector<Block> blocks;  // starts with d = 0 alone
};
SumPlan plan_sum(double step, double result_step, std::size_t reach, Rounding rounding);

// The law of X + Y, independent, rounded to the step of the plan's result. mean: the mean of X + Y.
// The cut drops mass `cut` below and mean `cut * mean` above.
GeometricLaw add(const GeometricLaw& x, const GeometricLaw& y, const SumPlan& plan, double mean,
                 double cut, Rounding rounding);

}  // namespace discreet::accounting
