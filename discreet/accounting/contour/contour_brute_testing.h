#pragma once

#include <optional>
#include <vector>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// delta(epsilon) of one direction by the integral of contour.h, implemented independently: in
// extended precision, over the whole line of outcomes, on a different contour, without bounds. Two
// evaluations on different contours and lattices must agree.
class BruteCurve {
 public:
  // Accurate near the point (epsilon, delta) of the curve. Empty if it would need more than `work`
  // complex multiplications.
  static std::optional<BruteCurve> near(const Composition& composition, Direction direction,
                                        double epsilon, double delta, double work = 2e7);

  struct Value {
    long double delta;
    long double error;  // relative: difference of the two evaluations plus estimated round-off
  };
  Value at(double epsilon) const;

  // The logarithm of M on a contour; public for the functions that fill it.
  struct Line {
    long double c, dt;
    std::vector<long double> re, im;
  };

 private:
  long double failure_ = 0;
  long double count_ = 0;
  Line first_, second_;
};

}  // namespace discreet::accounting
