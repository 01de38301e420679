#include "discreet/accounting/contour/contour_quadrature_impl.h"

#include <algorithm>
#include <cmath>

#include "discreet/accounting/contour/contour_rounding_impl.h"

namespace discreet::accounting::contour {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kLog2 = 0.69314718055994530942;

// log of (1 - 4p(1-p) sin^2(theta/2))^(-c/2), the growth of |g|^-c off the real axis.
double log_growth(double p, double c, double theta) noexcept {
  const double s = numerics::sin(theta / 2);
  return -0.5 * c * numerics::log1p(-4 * p * (1 - p) * s * s);
}

// Angle of 1 - p + p e^(i theta).
double angle(double p, double theta) noexcept {
  return numerics::atan2(p * numerics::sin(theta), (1 - p) + p * numerics::cos(theta));
}

// Least s with arg(1 - p + p e^(iy)) <= s y for all y in [0, theta]: the argument is concave in y
// up to p = 1/2 and convex beyond.
double steepness(double p, double theta) noexcept {
  return p <= 0.5 ? p : std::min(1.0, up(angle(p, theta) / theta));
}

double round_to_24_bits(double x) noexcept {
  int exponent;
  const double mantissa = std::frexp(x, &exponent);
  return std::ldexp(std::floor(std::ldexp(mantissa, 24)), exponent - 24);
}

}  // namespace

QuadratureBound::QuadratureBound(const Step& step, double c, double left, double right, double h,
                                 double half_height) noexcept
    : variance_(step.sigma * step.sigma), h_(h), theta_(half_height) {
  const double p_left = std::min(1.0, up(step.p(left)));
  const double p_right = std::min(1.0, up(step.p(right)));
  const double right_angle = up(angle(p_right, theta_));
  left_ = {steepness(p_left, theta_), 0};
  right_ = {p_right <= 0.5 ? p_right : std::min(1.0, up(right_angle / theta_)), 0};
  alpha_ = std::min(right_angle, theta_);
  grow_ = 0.5 * variance_ * theta_ * theta_;
  decay_ = 2 * kPi * theta_ * variance_ / h_;
  complement_ = 1 - numerics::exp(-decay_);
  if (step.direction == Direction::kRemove) return;
  grow_ += up(log_growth(std::min(p_right, 0.5), c, theta_));
  const double flat = -numerics::log(numerics::cos(theta_ / 2)) / theta_;
  const auto slope = [&](double p) {
    const double nearer_half = p <= 0.5 ? p : std::max(0.5, down(down(p)));
    const double curved = -0.1812 * numerics::log1p(-4 * nearer_half * (1 - nearer_half));
    return up(c * std::min(curved, flat));
  };
  left_.m = slope(p_left);
  right_.m = slope(p_right);
}

QuadratureBound best_bound_at_zero(const Step& step, double c, double left, double right, double h,
                                   double half_height) noexcept {
  QuadratureBound best(step, c, left, right, h, half_height);
  for (int k = 0; k < 8; ++k) {
    const QuadratureBound next(step, c, left, right, h, half_height *= 0.75);
    if (!(next.strip(0) < best.strip(0))) break;
    best = next;
  }
  return best;
}

double QuadratureBound::strip(double t) const noexcept {
  return up(2 * exp_up(grow_ + t * alpha_ - decay_) / complement_);
}

double QuadratureBound::side(double t, double density, const End& end) const noexcept {
  const double height = theta_ * variance_;
  const double against = down(2 * kPi / h_);
  const double lambda = against - up(theta_ / 2 + (t * end.bar + end.m) / variance_);
  const double length =
      lambda > 0 ? std::min(height, 1 / lambda) : height * exp_up(-lambda * height);
  return up(2 * density * length);
}

double QuadratureBound::ends(double t, double left_density, double right_density) const noexcept {
  return side(t, left_density, left_) + side(t, right_density, right_);
}

namespace {

// The node distance that a strip of half-height theta allows.
double node_distance(const Step& step, double c, double right, double cut, Tolerance tolerance,
                     double theta) noexcept {
  const double variance = step.sigma * step.sigma;
  const bool add = step.direction == Direction::kAdd;
  const double bits = kLog2 * (tolerance.density + 2);
  const double fall = 0.95 * kLog2 * tolerance.precision;
  const double p_right = step.p(right);
  const double decay = 2 * kPi * theta * variance;
  const double grow =
      0.5 * variance * theta * theta + (add ? log_growth(std::min(p_right, 0.5), c, theta) : 0.0);
  const double m = add ? -c * numerics::log(numerics::cos(theta / 2)) / theta : 0.0;
  const double alpha = angle(p_right, theta);
  const double bar = p_right <= 0.5 ? p_right : alpha / theta;
  // |M(z)| falls about like a Gaussian down to the cut, and the error may grow as it falls.
  double exponent = 0;
  for (const double part : {0.0, 0.33, 0.67, 1.0}) {
    const double t = part * cut;
    const double allowed = fall * part * part;
    const double strip = grow + t * alpha + bits - allowed;
    const double ends = theta * variance * (theta / 2 + (t * bar + m) / variance) - allowed;
    exponent = std::max({exponent, strip, ends});
  }
  return decay / exponent;
}

}  // namespace

Strip choose_strip(const Step& step, double c, const Window& window, double cut,
                   Tolerance tolerance) noexcept {
  // The distance first grows with the height and then falls: a search in ever smaller strides.
  const auto distance = [&](double theta, double right) {
    return node_distance(step, c, right, cut, tolerance, theta);
  };
  const double highest = std::min(3.0, 11 / step.sigma);
  double theta = highest;
  double h = distance(theta, window.right);
  for (const double factor : {0.547, 0.74, 0.86}) {
    for (const double turn : {factor, 1 / factor}) {
      for (double next = theta * turn; next <= highest && next > 0.05 * highest; next *= turn) {
        const double further = distance(next, window.right);
        if (!(further > h)) break;
        h = further;
        theta = next;
      }
    }
  }
  // The window ends up to a node and a half further right, where p is larger and the bounds worse.
  h = distance(theta, window.right + 1.5 * h);
  return {round_to_24_bits(h), theta};
}

}  // namespace discreet::accounting::contour
