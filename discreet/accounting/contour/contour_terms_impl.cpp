#include "discreet/accounting/contour/contour_terms_impl.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "discreet/accounting/contour/contour_layers_impl.h"
#include "discreet/accounting/contour/contour_nodes_impl.h"
#include "discreet/accounting/contour/contour_quadrature_impl.h"
#include "discreet/accounting/contour/contour_rounding_impl.h"

namespace discreet::accounting::contour {
namespace {

constexpr double kSmallest = 0x1p-200;  // |phi| below this is taken as this
constexpr double kLargestError = 900;

// Estimates phi_j with bounds of their errors, to be turned into log|phi|, arg phi and X.
class Phis {
 public:
  explicit Phis(std::size_t size) : size_(size), values_(5 * size) {}

  void set(std::size_t j, double re, double im, double error) noexcept {
    double length = std::sqrt(re * re + im * im);
    if (!(length >= kSmallest)) {
      re = kSmallest;
      im = 0;
      length = kSmallest;
      error += 2 * kSmallest;
    }
    column(0)[j] = re;
    column(1)[j] = im;
    column(2)[j] = re * re + im * im;
    column(4)[j] = up(error / length);
  }

  void put(double* out) noexcept {
    numerics::atan2(column(1), column(0), column(3));
    numerics::log(column(2), column(2));
    numerics::log1p(column(4), column(4));
    for (std::size_t j = 0; j < size_; ++j, out += kPerTerm) {
      out[0] = 0.5 * column(2)[j];
      out[1] = column(3)[j];
      const double own = 1.05 * kUnit * (3 + 3 * std::abs(out[0]) + 2 * std::abs(out[1]));
      const double total = up(column(4)[j]) + own;
      out[2] = total < kLargestError ? total : kLargestError;
    }
  }

 private:
  std::span<double> column(std::size_t i) noexcept {
    return std::span(values_).subspan(i * size_, size_);
  }
  std::size_t size_;
  std::vector<double> values_;
};

void put_unfit(std::span<double> out) noexcept {
  std::fill(out.begin(), out.end(), 0.0);
  out[kUnfit] = 1;
}

// Mass outside the window: tilted, relative to the mass inside, or as a probability.
struct Outside {
  double tilted = 0;
  double probability = 0;
  bool bounded = true;
};

Outside outside_window(const Step& step, double c, double left, double right, double left_density,
                       double right_density) noexcept {
  const double variance = step.sigma * step.sigma;
  const bool remove = step.direction == Direction::kRemove;
  Outside result;
  const double left_slope = remove ? -left : -left - up(c * step.p(left));
  if (!(left < 0 && left_slope > 0)) return {0, 0, false};
  result.tilted = left_density * variance / left_slope;
  const double right_slope = remove ? right - 1 - c : right;
  if (right_slope >= 0.5 * step.sigma) {
    result.tilted += right_density * variance / right_slope;
  } else if (remove) {
    const double scale = 0.70710678118654752 / step.sigma;
    result.probability = 0.5 * ((1 - step.rate) * numerics::erfc(right * scale) +
                                step.rate * numerics::erfc((right - 1) * scale));
  } else {
    result.bounded = false;
  }
  result.tilted = up(result.tilted);
  // The argument of erfc, z <= 40, is within 4u: relative 2 z^2 4u.
  result.probability *= 1 + 0x1p-35;
  return result;
}

}  // namespace

std::int64_t Contour::terms() const noexcept {
  if (mass_only()) return 0;
  const double ratio = ladder(cut) / dt();
  if (!(ratio < 0x1p30)) return std::int64_t{1} << 30;
  std::int64_t count = static_cast<std::int64_t>(std::ceil(ratio));
  while (static_cast<double>(count) * dt() < ladder(cut)) ++count;
  return count;
}

std::size_t contribution_size(const Contour& contour) noexcept {
  return kFirstTerm + kPerTerm * static_cast<std::size_t>(contour.terms());
}

std::int64_t contribute_subsampled(const CoarseGrid& grid, const Contour& contour,
                                   const Spoil& spoil, std::int64_t most_nodes,
                                   std::span<double> out) {
  const Step& step = grid.step();
  const double c = contour.c();
  const std::int64_t terms = contour.terms();
  Window window = grid.window(c, contour.tolerance);
  put_unfit(out);
  if (!window.feasible) return 0;
  window.left *= spoil.window;
  window.right *= spoil.window;
  const double cut = static_cast<double>(terms) * contour.dt();
  Strip strip = choose_strip(step, c, window, cut, contour.tolerance);
  if (spoil.node_distance != 1) strip.h = static_cast<float>(strip.h * spoil.node_distance);
  const double first = std::floor(window.left / strip.h);
  const double last = std::ceil(window.right / strip.h);
  if (!(last - first < static_cast<double>(most_nodes)) || !(strip.h > 0)) return most_nodes + 1;

  const auto count = static_cast<std::int64_t>(last - first) + 1;
  const Nodes nodes(step, c, strip.h, static_cast<std::int64_t>(first), count);
  const double left = nodes.left();
  const double right = nodes.right();
  const double mass = nodes.log_mass();
  const auto density = [&](double x, double at_order, double log_scale) {
    return exp_up(step.log_density(x, at_order) - log_scale +
                  step.log_density_error(x, at_order, step.log_ratio(x)));
  };

  const QuadratureBound bound(step, c, left, right, strip.h, strip.half_height);
  const double left_density = density(left, c, mass);
  const double right_density = density(right, c, mass);
  const double strip_0 = bound.strip(0);
  const double ends_0 = bound.ends(0, left_density, right_density);
  if (!(strip_0 < 0x1p-10 && ends_0 < 0x1p-10 && nodes.mass_error() < 0x1p-20)) return count;
  const double integral = up((1 + nodes.mass_error()) * (1 + ends_0) / (1 - strip_0));
  const auto quadrature = [&](double t) {
    return integral * bound.strip(t) + bound.ends(t, left_density, right_density);
  };

  const double mass_error = up(nodes.mass_error() + quadrature(0));
  const Outside outside = outside_window(step, c, left, right, left_density, right_density);
  if (!outside.bounded) return count;
  out[kLogMass] = mass;
  out[kCentre] = nodes.centre();
  out[kNodes] = static_cast<double>(count);
  out[kMassError] = mass_error;
  out[kTilted] = std::ldexp(up(outside.tilted / (1 - mass_error)), contour.tolerance.density);
  out[kTail] = std::ldexp(outside.probability, contour.tolerance.tail);

  if (contour.mass_only()) {
    out[kUnfit] = 0;
    return count;
  }

  const double image_c = contour.image_c();
  const QuadratureBound image =
      best_bound_at_zero(step, image_c, left, right, strip.h, strip.half_height);
  const double image_sum = nodes.log_sum_upper(image_c);
  const double image_strip = image.strip(0);
  const double image_ends =
      image.ends(0, density(left, image_c, image_sum), density(right, image_c, image_sum));
  if (!(image_strip < 0.5 && image_ends < 1)) return count;
  out[kImageMass] = image_sum + up(numerics::log1p(image_ends)) -
                    up(numerics::log1p(-image_strip)) + 0x1p-45 * std::abs(image_sum);

  const Layers layers(grid, c, {left, right, true}, mass);
  for (std::size_t i = 0; i < kPieces; ++i) {
    out[kDecay + i] =
        layers.log_bound(ladder(contour.cut + static_cast<int>(i)), mass + mass_error);
  }

  std::vector<Nodes::Wave> waves(static_cast<std::size_t>(terms));
  nodes.waves(contour.dt(), waves);
  Phis phis(waves.size());
  constexpr std::size_t kShare = 4;  // the quadrature bound grows with t: one value serves a group
  for (std::size_t begin = 0; begin < waves.size(); begin += kShare) {
    const std::size_t end = std::min(begin + kShare, waves.size());
    const double error = quadrature(static_cast<double>(end) * contour.dt());
    for (std::size_t j = begin; j < end; ++j) {
      phis.set(j, waves[j].re, waves[j].im, waves[j].error + error);
    }
  }
  phis.put(out.data() + kFirstTerm);
  out[kUnfit] = 0;
  return count;
}

double full_batch_log_mass(double sigma, double c) noexcept {
  return c * (c + 1) / (2 * sigma * sigma);
}

void contribute_full_batch(double sigma, const Contour& contour, std::span<double> out) noexcept {
  // M(z) = exp(z (z+1) / (2 sigma^2)); every product below is within 4u.
  const double c = contour.c();
  const double twice_variance = 2 * sigma * sigma;
  const double mass = full_batch_log_mass(sigma, c);
  std::fill(out.begin(), out.end(), 0.0);
  out[kLogMass] = mass;
  out[kCentre] = (2 * c + 1) / twice_variance;
  out[kMassError] = 6 * kUnit * mass;
  out[kImageMass] = full_batch_log_mass(sigma, contour.image_c()) * (1 + 8 * kUnit);
  for (std::size_t i = 0; i < kPieces; ++i) {
    const double t = ladder(contour.cut + static_cast<int>(i));
    out[kDecay + i] = std::max(-700.0, -down(t * t / twice_variance));
  }
  double* term = out.data() + kFirstTerm;
  for (std::int64_t j = 1; j <= contour.terms(); ++j, term += kPerTerm) {
    const double t = static_cast<double>(j) * contour.dt();
    const double fall = t * t / twice_variance;
    term[0] = -fall;
    term[2] = 6 * kUnit * (mass + fall + t * out[kCentre]);
  }
}

double explicit_log_mass(double epsilon, double c) noexcept {
  return epsilon * c + (numerics::log1p(numerics::exp(-epsilon * (1 + 2 * c))) -
                        numerics::log1p(numerics::exp(-epsilon)));
}

void contribute_explicit(double epsilon, const Contour& contour, std::span<double> out) {
  // Two atoms, at +epsilon and -epsilon, with tilted masses 1/(1+r) and r/(1+r).
  const double c = contour.c();
  const double ratio = numerics::exp(-epsilon * (1 + 2 * c));
  const double high = 1 / (1 + ratio);
  const double low = ratio / (1 + ratio);
  const double centre = epsilon * (high - low);
  std::fill(out.begin(), out.end(), 0.0);
  out[kLogMass] = explicit_log_mass(epsilon, c);
  out[kCentre] = centre;
  out[kMassError] = 8 * kUnit * (2 + epsilon * (1 + c));
  const double image_c = contour.image_c();
  out[kImageMass] = explicit_log_mass(epsilon, image_c) + 8 * kUnit * (2 + epsilon * (1 + image_c));
  const auto terms = static_cast<std::size_t>(contour.terms());
  Phis phis(terms);
  for (std::size_t j = 0; j < terms; ++j) {
    const double t = static_cast<double>(j + 1) * contour.dt();
    const double up_angle = t * (epsilon - centre);
    const double down_angle = -t * (epsilon + centre);
    const double re = high * numerics::cos(up_angle) + low * numerics::cos(down_angle);
    const double im = high * numerics::sin(up_angle) + low * numerics::sin(down_angle);
    phis.set(j, re, im, out[kMassError] + kUnit * (20 + 8 * t * epsilon));
  }
  phis.put(out.data() + kFirstTerm);
}

}  // namespace discreet::accounting::contour
