#pragma once

#include "discreet/accounting/contour/contour_step_impl.h"

namespace discreet::accounting::contour {

// A bound on the difference between the trapezoidal rule over nodes i*h, i in [first, last], and
// the integral of g^w phi over [(first - 1/2) h, (last + 1/2) h] at Re w = weight(c), |Im w| = t
// (theorem Quadrature). With I the integral of f and f(a), f(b) its values at the two ends,
//   |sum - integral| <= I * strip(t) + ends(t, f(a), f(b)).
class QuadratureBound {
 public:
  // half_height is theta in (0, 3.05]: the bound uses the strip of analyticity |Im x| <= theta
  // sigma^2.
  QuadratureBound(const Step& step, double c, double left, double right, double h,
                  double half_height) noexcept;

  double strip(double t) const noexcept;
  double ends(double t, double left_density, double right_density) const noexcept;

 private:
  struct End {
    double bar, m;  // the slopes of section Quadrature, (iv)
  };
  double side(double t, double density, const End& end) const noexcept;

  double variance_, h_, theta_;
  End left_, right_;
  double alpha_;
  double grow_, decay_;  // strip(t) = 2 exp(grow + t alpha - decay) / (1 - exp(-decay))
  double complement_;    // 1 - exp(-decay)
};

// The bound holds for every height of the strip. Returns the best of several heights, none above
// half_height, at t = 0.
QuadratureBound best_bound_at_zero(const Step& step, double c, double left, double right, double h,
                                   double half_height) noexcept;

// A node distance and strip for which strip(t) is about 2^-density at small t, and larger where
// |M(z)| is smaller, up to 2^-precision at the largest t, `cut`. Not certified: QuadratureBound
// gives the actual error.
struct Strip {
  double h;  // 24 significant bits
  double half_height;
};
Strip choose_strip(const Step& step, double c, const Window& window, double cut,
                   Tolerance tolerance) noexcept;

}  // namespace discreet::accounting::contour
