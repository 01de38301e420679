#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "discreet/accounting/composition.h"

namespace discreet::accounting::contour {

// Orders, spacings and cuts come from ladders, so that similar compositions share a contour and
// reuse each other's evaluations. Ladder values have 24 significant bits, so products with node
// numbers are exact.
double ladder(int index) noexcept;  // 2^(index/4), rounded to 24 bits

// One Poisson-subsampled Gaussian step in one direction, as a function of the outcome x:
//   g(x) = 1 - q + q exp(v), v = (2x-1)/(2 sigma^2);  l = log g;  p = q exp(v)/g.
// Tilted to order c the integrand is f = exp(w l - x^2/(2 sigma^2)) / (sigma sqrt(2 pi)), with
// w = 1 + c for remove and w = -c for add.
struct Step {
  double rate;  // q in (0, 1)
  double sigma;
  Direction direction;

  double weight(double c) const noexcept { return direction == Direction::kRemove ? 1 + c : -c; }
  double exponent(double x) const noexcept { return (2 * x - 1) / (2 * sigma * sigma); }
  double p(double x) const noexcept;                      // relative error below 2^-40
  double log_ratio(double x) const noexcept;              // l; error in contour.md, Round-off
  double log_density(double x, double c) const noexcept;  // log f
  // Bound of the rounding error of log f, and of log f - log l', at x (generous).
  double log_density_error(double x, double c, double l) const noexcept;

  // v, y = g - 1 and l at many points. All spans have the length of x; y may be l.
  void log_ratios(std::span<const double> x, std::span<double> v, std::span<double> y,
                  std::span<double> l) const noexcept;
};

// True if the contour supports the step; the transform handles all others. Near rate 1 the rounding
// of l grows as q/(1-q); the layers allow for 2^-30 of it.
inline bool supported(const GaussianSteps& steps) noexcept {
  return steps.sigma >= 0.05 && steps.sigma <= 1e6 && steps.rate >= 1e-60 &&
         (steps.rate == 1 || 1 - steps.rate >= 0x1p-16) && steps.count <= (1ull << 53);
}

// A window [left, right] of outcomes; empty (feasible false) if there is no suitable one at this
// order.
struct Window {
  double left = 0;
  double right = 0;
  bool feasible = false;
};

// The size of the parts cut off: 2^-density of the tilted density at its peak and, for a right tail
// that cannot be charged after tilting, 2^-tail in probability. The target relative error of the
// result is about 2^-precision.
struct Tolerance {
  int density;
  int tail;
  int precision;
  friend bool operator==(const Tolerance&, const Tolerance&) = default;
};

// A coarse grid along x, used to choose windows and orders. Its values are not certified.
class CoarseGrid {
 public:
  explicit CoarseGrid(const Step& step);

  const Step& step() const noexcept { return step_; }
  Window window(double c, Tolerance tolerance) const noexcept;
  // log of the integral of f at order c over the window, by the trapezoid rule.
  double log_mass(double c, const Window& window) const noexcept;
  // The part of the window where f at order c is at least e^-16 of its peak.
  Window bulk(double c, const Window& window) const noexcept;

 private:
  std::size_t first_at_least(double x) const noexcept;

  Step step_;
  double spacing_;
  std::vector<double> x_, l_, square_;  // square = x^2/(2 sigma^2)
  mutable std::vector<double> scratch_;
};

}  // namespace discreet::accounting::contour
