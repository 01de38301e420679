#pragma once

#include <span>
#include <vector>

#include "discreet/accounting/contour/contour_fixed_impl.h"
#include "discreet/accounting/contour/contour_terms_impl.h"

namespace discreet::accounting::contour {

// log of B(c) = c^c / (1+c)^(1+c) = sup over y > 0 of (1 - e^-y) e^(-cy).
double log_chernoff(double c) noexcept;

// Bounds of delta(epsilon) in one direction, from the totals of a composition on a contour. All
// values are relative to exp(log_delta), so that nothing underflows.
class Certificate {
 public:
  Certificate(const Contour& contour, std::span<const Fixed> totals, std::size_t distinct,
              double log_delta);

  struct Value {
    double estimate;   // estimate of delta
    double slope;      // slope of its logarithm
    double lower;      // delta >= lower
    double upper;      // delta <= upper
    double round_off;  // the part of upper - estimate that every contour has
    double images;     // the parts that another contour would avoid
    double cut;
  };
  // NaN if something overflowed, so that every comparison fails.
  Value at(double epsilon) const;
  // An upper bound of delta from the mass alone: Chernoff's bound plus the mass outside the
  // windows.
  double chernoff(double epsilon) const;

 private:
  double exponent(double epsilon) const;          // K - c epsilon - log_delta
  double outside_windows(double exponent) const;  // charge, upwards

  Contour contour_;
  double c_, dt_, log_delta_;
  Fixed log_mass_, centre_, image_mass_;
  double mass_error_, tilted_, tail_;
  double cut_;   // bound of the terms beyond the cut, relative to exp(K - c epsilon)
  double grid_;  // accumulated rounding of the fixed-point totals
  std::vector<double> t_, re_, im_;  // F_j / (z_j (z_j+1)) at t_j, twice: j and -j
  double magnitude_, error_;         // sums of their magnitudes and errors, including t = 0
  double leverage_;                  // sum of magnitudes times t_j
};

}  // namespace discreet::accounting::contour
