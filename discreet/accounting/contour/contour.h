#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// The certified contour accountant.
//
// For one direction, let L be the total privacy loss of a composition, log dP/dQ under P (remove)
// or log dQ/dP under Q (add), and let M(z) = E[exp(z L)]. Then for any c > 0
//
//   delta(epsilon) = E[(1 - exp(epsilon - L))+] = 1/(2 pi) * integral over t of
//                    M(z) exp(-z epsilon) / (z (z+1)),   z = c + it.
//
// The integral is computed as a sum over a lattice of t, and M(z) of each step as a sum over a
// lattice of outcomes x. The errors of window, quadrature, aliasing, truncation and round-off are
// all bounded, so the result is an interval around the exact value, not an approximation of it. The
// cost depends only on the number of distinct steps.
//
// Proof: contour.md
//
// Results have the same bits on every machine and depend only on the multiset of steps, not on
// their order or history. Functions are thread-safe; a ContourSession is not.

struct ContourResult {
  Interval value;      // contains the exact epsilon (or delta)
  double delta_error;  // half of the remaining width in delta, at the estimate; if a bound of
                       // delta(0) gave epsilon = 0, that bound
  double order;        // c, the abscissa of the contour
  std::int64_t terms;  // number of values of t
  std::int64_t nodes;  // number of values of x that this call evaluated, over all distinct steps
};

// An interval that contains epsilon(delta) = the least epsilon >= 0 with delta(epsilon) <= delta.
//   composition     Poisson-subsampled, full-batch and explicit steps; at least one step.
//   delta           in (0, 1).
//   relative_width  in (0, 1): the target error relative to delta. The width in epsilon is about
//                   relative_width / |d log delta / d epsilon|. It is larger if round-off, which
//                   grows with the number of steps, does not allow it.
// Empty if the value cannot be certified at reasonable cost; use another accountant then. This
// happens for fewer than about 10 subsampled steps, for rate * steps below about 2.5 at small
// rates, for explicit steps alone, and outside these ranges: sigma in [0.05, 1e6], rate in [1e-60,
// 1 - 2^-16] or 1, explicit epsilon up to 1000, counts up to 2^53, delta from 1e-250.
// Throws kInvalidDpConfig if an argument is outside its range.
std::optional<ContourResult> contour_epsilon(const Composition& composition, Direction direction,
                                             double delta, double relative_width = 1e-10);

// An interval that contains delta(epsilon); epsilon >= 0. Otherwise as above.
std::optional<ContourResult> contour_delta(const Composition& composition, Direction direction,
                                           double epsilon, double relative_width = 1e-10);

// True if Chernoff's bound alone proves delta(epsilon) <= delta. This is much cheaper than an
// interval and sufficient for a direction that is clearly the better one. False proves nothing.
// delta in (0, 1), epsilon >= 0; otherwise as above.
bool contour_holds(const Composition& composition, Direction direction, double epsilon,
                   double delta);

// The same functions for a growing run. Sums over the composition are kept, so a query evaluates
// only the distinct steps that are new or changed since the last query. Once or twice per doubling
// of the composition the contour moves, and every distinct step is evaluated again, at about 20
// microseconds each. Results have the same bits as those above. Memory: about 4 kB per distinct
// step.
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
