#pragma once

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// Proof: transform.md

// One step's dominating pair, P = (1-q) N(0, sigma^2) + q N(1, sigma^2) and Q = N(0, sigma^2), with
// every computed number carrying a bound of its error. The remove-loss of outcome x is
//     l(x) = log(1 - q + q e^{(2x-1)/2sigma^2}),
// strictly rising from log(1-q) at x = -infinity; the add-loss is -l(x).
// The bounds assume the elementary functions to be within one unit in the last place.

inline constexpr double kU = 0x1p-53;  // unit roundoff of binary64

// A non-negative number and a bound of its absolute error.
struct Mass {
  double value, error;
};

// The smaller of the two tails of N(0, 1/2) at z: erfc|z|/2.
struct Tail {
  double z, mass, error;
};
Tail tail_at(double z);

// An outcome x, -infinity and +infinity included.
struct Edge {
  double x;
  double loss_error;   // bound of |l(x) - loss it was asked for|
  double sharpness;    // upper bound of q e^v / (1 - q + q e^v), the derivative of l in v =
                       // (2x-1)/2sigma^2
  Tail without, with;  // tails at x of N(0, sigma^2) and N(1, sigma^2)
};

// An interval of outcomes: its mass under N(0, sigma^2) and under N(1, sigma^2).
struct Cell {
  Mass without, with;
};

// q + expm1(l) at a loss l, with a bound of its absolute error.
struct Slope {
  double value, error;
};

class SubsampledGaussian {
 public:
  // q in (0, 1], sigma > 0; the direction decides which law is A and which is B.
  SubsampledGaussian(double q, double sigma, Direction direction);

  Edge edge_at(double x) const;                 // exact: loss_error 0
  Edge edge_at_loss(double remove_loss) const;  // -infinity where no outcome has so small a loss
  Cell cell(const Edge& left, const Edge& right) const;
  Mass a_mass(const Cell& cell) const;

  Slope slope_at(double remove_loss) const;

  // q m1 - slope m0 for the cell's masses m0 and m1: that is P(cell) - e^l Q(cell) for the loss l of
  // the slope, without the cancellation when q is small.
  Mass excess(const Cell& cell, const Slope& slope) const;

 private:
  double q_, sigma_, scale_;
  Direction direction_;
};

// Heuristics, for planning only: the loss of x, and the range of x that carries all but `tail` of
// the A-mass at either end.
double loss_at(double x, double q, double sigma);
Interval outcome_range(double q, double sigma, Direction direction, double tail);

}  // namespace discreet::accounting
