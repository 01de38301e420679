#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// The certified contour accountant.
//
// For one direction, let L be the total privacy loss of a composition, log dP/dQ under P (remove)
// or log dQ/dP under Q (add), and M(z) = E[exp(z L)]. Then for any c > 0
//
//   delta(epsilon) = E[(1 - exp(epsilon - L))+] = 1/(2 pi) * integral over t of
//                    M(z) exp(-z epsilon) / (z (z+1)),   z = c + it.
//
// The integral is a sum over a lattice of t, M(z) of each step a sum over a lattice of outcomes x.
// Window, quadrature, aliasing, truncation and round-off are all bounded, so that what is returned
// is an interval around the exact value, not an approximation of it. The cost does not depend on
// the number of steps, only on the number of distinct ones.
//
// Proof: contour.md
//
// Results have the same bits on every machine, and for the same multiset of steps whatever the
// order or history in which they came. Functions are thread-safe; a ContourSession is not.

struct ContourResult {
  Interval value;      // contains the exact epsilon (or delta)
  double delta_error;  // half of the width in delta that the certificate left, at the estimate;
                       // where a bound of delta(0) gave epsilon = 0, that bound
  double order;        // c, the abscissa of the contour
  std::int64_t terms;  // values of t
  std::int64_t nodes;  // values of x evaluated by this call, over all distinct steps
};

// An interval that contains epsilon(delta) = the least epsilon >= 0 with delta(epsilon) <= delta.
//   composition     Poisson-subsampled, full-batch and explicit steps; at least one step.
//   delta           in (0, 1).
//   relative_width  in (0, 1): the error aimed at, relative to delta. The width in epsilon is about
//                   relative_width / |d log delta / d epsilon|; more where round-off, which grows
//                   with the number of steps, does not allow it.
// Empty if it cannot be certified at reasonable cost: then another accountant must serve. This is
// so for fewer than about 10 subsampled steps, for rate * steps below about 2.5 at small rates, for
// explicit steps alone, and outside these ranges: sigma in [0.05, 1e6], rate in [1e-60, 1 - 2^-16]
// or 1, explicit epsilon up to 1000, counts up to 2^53, delta from 1e-250.
// Throws kInvalidDpConfig if an argument is outside its range.
std::optional<ContourResult> contour_epsilon(const Composition& composition, Direction direction,
                                             double delta, double relative_width = 1e-10);

// An interval that contains delta(epsilon); epsilon >= 0. Otherwise as above.
std::optional<ContourResult> contour_delta(const Composition& composition, Direction direction,
                                           double epsilon, double relative_width = 1e-10);

// Whether Chernoff's bound alone is certain that delta(epsilon) <= delta: far cheaper than an
// interval, and enough for a direction that is clearly the lesser one. False says nothing. delta in
// (0, 1), epsilon >= 0; otherwise as above.
bool contour_holds(const Composition& composition, Direction direction, double epsilon,
                   double delta);

// The same functions, for a run that grows: sums over the composition are kept, so that a query
// costs an evaluation of the distinct steps that are new or changed since the last query, never of
// the history. (Once or twice per doubling of the composition the contour moves, and every distinct
// step is evaluated again, at about 20 microseconds each.) Results have the same bits as those
// above. Memory: about 4 kB per distinct step.
class ContourSession {
 public:
  explicit ContourSession(Direction direction);
  ~ContourSession();
  ContourSession(ContourSession&&) noexcept;
  ContourSession& operator=(ContourSession&&) noexcept;

  std::optional<ContourResult> epsilon(const Composition& composition, double delta,
                                       double relative_width = 1e-10);
  std::optional<ContourResult> delta(const Composition& composition, double epsilon,
                                     double relative_width = 1e-10);
  bool holds(const Composition& composition, double epsilon, double delta);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace discreet::accounting
