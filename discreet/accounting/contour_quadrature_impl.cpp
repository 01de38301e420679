#include "discreet/accounting/contour_quadrature_impl.h"

#include <algorithm>
#include <cmath>

#include "discreet/accounting/contour_rounding_impl.h"

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
    : variance_(step.sigma * step.sigma),
      h_(h),
      theta_(half_height),
      p_left_(std::min(1.0, up(step.p(left)))),
      p_right_(std::min(1.0, up(step.p(right)))),
      m_left_(0),
      m_right_(0),
      log_kappa_(0),
      alpha_(std::min(up(angle(p_right_, theta_)), theta_)) {
  if (step.direction == Direction::kRemove) return;
  log_kappa_ = up(log_growth(std::min(p_right_, 0.5), c, theta_));
  const double flat = -numerics::log(numerics::cos(theta_ / 2)) / theta_;
  const auto slope = [&](double p) {
    const double nearer_half = p <= 0.5 ? p : std::max(0.5, down(down(p)));
    const double curved = -0.1812 * numerics::log1p(-4 * nearer_half * (1 - nearer_half));
    return up(c * std::min(curved, flat));
  };
  m_left_ = slope(p_left_);
  m_right_ = slope(p_right_);
}

QuadratureBound best_bound_at_zero(const Step& step, double c, double left, double right, double h,
                                   double half_height) noexcept {
  QuadratureBound best(step, c, left, right, h, half_height);
  for (int k = 0; k < 8; ++k) {
    const QuadratureBound next(step, c, left, right, h, half_height *= 0.75);
    if (next.strip(0) < best.strip(0)) best = next;
  }
  return best;
}

double QuadratureBound::strip(double t) const noexcept {
  const double grow = log_kappa_ + 0.5 * variance_ * theta_ * theta_ + t * alpha_;
  const double decay = 2 * kPi * theta_ * variance_ / h_;
  return up(2 * exp_up(grow - decay) / (1 - numerics::exp(-decay)));
}

double QuadratureBound::side(double t, double density, double p, double m) const noexcept {
  const double bar = steepness(p, theta_);
  const double height = theta_ * variance_;
  const double against = down(2 * kPi / h_);
  const double lambda = against - up(theta_ / 2 + (t * bar + m) / variance_);
  const double length =
      lambda > 0 ? std::min(height, 1 / lambda) : height * exp_up(-lambda * height);
  return up(2 * density * length);
}

double QuadratureBound::ends(double t, double left_density, double right_density) const noexcept {
  return side(t, left_density, p_left_, m_left_) + side(t, right_density, p_right_, m_right_);
}

namespace {

Strip choose_strip(const Step& step, double c, double right, double cut,
                   Tolerance tolerance) noexcept {
  const double variance = step.sigma * step.sigma;
  const bool add = step.direction == Direction::kAdd;
  const double bits = kLog2 * (tolerance.density + 2);
  const double fall = 0.95 * kLog2 * tolerance.precision;
  const double p_right = step.p(right);
  Strip best{0, 0};
  double theta = std::min(3.0, 11 / step.sigma);
  for (int k = 0; k < 20; ++k, theta *= 0.86) {
    const double decay = 2 * kPi * theta * variance;
    const double grow =
        0.5 * variance * theta * theta + (add ? log_growth(std::min(p_right, 0.5), c, theta) : 0.0);
    const double m = add ? -c * numerics::log(numerics::cos(theta / 2)) / theta : 0.0;
    const double alpha = angle(p_right, theta);
    const double bar = steepness(p_right, theta);
    // |M(z)| falls about like a Gaussian down to the cut, and the error may grow as it falls.
    double exponent = 0;
    for (const double part : {0.0, 0.33, 0.67, 1.0}) {
      const double t = part * cut;
      const double allowed = fall * part * part;
      const double strip = grow + t * alpha + bits - allowed;
      const double ends = theta * variance * (theta / 2 + (t * bar + m) / variance) - allowed;
      exponent = std::max({exponent, strip, ends});
    }
    const double h = decay / exponent;
    if (h > best.h) best = {h, theta};
  }
  return best;
}

}  // namespace

Strip choose_strip(const Step& step, double c, const Window& window, double cut,
                   Tolerance tolerance) noexcept {
  // The window ends up to a node and a half further right, where p is larger and the bounds worse.
  Strip strip = choose_strip(step, c, window.right, cut, tolerance);
  strip = choose_strip(step, c, window.right + 1.5 * strip.h, cut, tolerance);
  strip.h = round_to_24_bits(strip.h);
  return strip;
}

}  // namespace discreet::accounting::contour
