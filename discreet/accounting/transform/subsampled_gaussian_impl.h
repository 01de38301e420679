#pragma once

#include <cstdint>
#include <vector>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// Proof: transform.md

// The dominating pair of one step; every computed number carries a bound of its error. Each of the
// k records of a group takes part with probability q; with w_j = P[Bin(k, q) = j],
//     P = sum_j w_j N(j, sigma^2)   and   Q = N(0, sigma^2).
// For one record, k = 1: P = (1-q) N(0, sigma^2) + q N(1, sigma^2). The remove-loss of outcome x is
//     l(x) = log(w_0 + sum_{j>0} w_j e^{j(2x-j)/2sigma^2}),
// strictly increasing from log w_0 at x = -infinity; the add-loss is -l(x). The bounds assume that
// elementary functions are accurate within one unit in the last place.

inline constexpr double kU = 0x1p-53;  // unit roundoff of binary64

// A non-negative number and a bound of its absolute error.
struct Mass {
  double value, error;
};

// The smaller of the two tails of a law at an outcome: the upper tail where z >= 0.
struct Tail {
  double z, mass, error;
};
Tail tail_at(double z);  // of N(0, 1/2): erfc|z|/2

// An outcome x; may be -infinity or +infinity.
struct Edge {
  double x;
  double loss_error;   // bound of |l(x) - requested loss|
  double sharpness;    // upper bound of 1 - w_0 e^{-l}, the derivative of l in v = log dW/dQ
  Tail without, with;  // tails at x of Q and of W, the mixture given that some member takes part
};

// An interval of outcomes: its mass under Q and under W.
struct Cell {
  Mass without, with;
};

// expm1(l) + 1 - w_0 at a loss l, with a bound of its absolute error.
struct Slope {
  double value, error;
};

// The number of members of a group that take part in a step.
struct Participation {
  double some = 1;   // 1 - w_0
  double none = 0;   // w_0
  double error = 0;  // bound of the relative errors of `some`, `none` and all shares
  // P[j | some member takes part], ascending in j.
  struct Part {
    double members, share, log_share;
  };
  std::vector<Part> parts;
  double dropped = 0;  // bound of the mass of all omitted j
};

// rate: in (0, 1]; group: in [1, 2^32]; counts with mass below `cutoff` may be omitted. Exact for
// one record and for rate 1.
Participation participation(double rate, std::uint64_t group, double cutoff);

// A cutoff whose effect is negligible compared with outcomes of A-mass `tail`.
double negligible_part(double rate, std::uint64_t group, double tail);

class SubsampledGaussian {
 public:
  // rate in (0, 1], sigma > 0; the direction determines which law is A and which is B. cutoff: as
  // for participation().
  SubsampledGaussian(double rate, double sigma, Direction direction, std::uint64_t group = 1,
                     double cutoff = 1e-300);

  Edge edge_at(double x) const;                 // exact: loss_error 0
  Edge edge_at_loss(double remove_loss) const;  // -infinity if every outcome has a larger loss
  Cell cell(const Edge& left, const Edge& right) const;
  Mass a_mass(const Cell& cell) const;

  Slope slope_at(double remove_loss) const;

  // (1-w_0) m1 - slope m0 for the cell's masses m0 and m1. This is P(cell) - e^l Q(cell) for the
  // loss l of the slope, without cancellation when 1-w_0 is small.
  Mass excess(const Cell& cell, const Slope& slope) const;

  // Bound of the mass of P that its computed law omits.
  double dropped() const { return takes_part_.dropped; }

  // Heuristics for planning only: the remove-loss of x and its infimum, and the range of x that
  // contains all but `tail` of the A-mass at either end.
  double loss_at(double x) const;
  double least_loss() const;
  Interval outcome_range(double tail) const;

 private:
  struct LogRatio {
    double value, slope, error;
  };
  LogRatio log_ratio(double x) const;  // log dW/dQ, its derivative, and a bound of its error
  Tail with_at(double x) const;

  Participation takes_part_;
  double sigma_, scale_;
  double centre_ = 0;  // with several parts: where with_at() switches between tails
  Direction direction_;
};

}  // namespace discreet::accounting
