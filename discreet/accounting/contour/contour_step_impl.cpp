#include "discreet/accounting/contour/contour_step_impl.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "discreet/accounting/contour/contour_rounding_impl.h"

namespace discreet::accounting::contour {
namespace {

constexpr double kLogSqrtTwoPi = 0.91893853320467274178;
// Past this v the exponential nears overflow and l is v + log q to the last bit.
constexpr double kLargeV = 600;

}  // namespace

double ladder(int index) noexcept {
  constexpr std::array<double, 4> kQuarter = {1.0, 0x1.306fep+0, 0x1.6a09e6p+0, 0x1.ae89fap+0};
  return std::ldexp(kQuarter[index & 3], (index - (index & 3)) / 4);
}

double Step::p(double x) const noexcept {
  return 1 / (1 + (1 - rate) / rate * numerics::exp(-exponent(x)));
}

double Step::log_ratio(double x) const noexcept {
  const double v = exponent(x);
  return v < kLargeV ? numerics::log1p(rate * numerics::expm1(v)) : v + numerics::log(rate);
}

double Step::log_density(double x, double c) const noexcept {
  return weight(c) * log_ratio(x) - x * x / (2 * sigma * sigma) -
         (numerics::log(sigma) + kLogSqrtTwoPi);
}

double Step::log_density_error(double x, double c, double l) const noexcept {
  return 16 * kUnit * (2 + std::abs(weight(c))) *
         (2 + std::abs(exponent(x)) + rate / (1 - rate) + std::abs(l) - numerics::log(rate) +
          std::abs(numerics::log(sigma)) + x * x / (sigma * sigma));
}

void Step::log_ratios(std::span<const double> x, std::span<double> v, std::span<double> y,
                      std::span<double> l) const noexcept {
  const double twice_variance = 2 * sigma * sigma;
  bool large = false;
  for (std::size_t i = 0; i < x.size(); ++i) {
    v[i] = (2 * x[i] - 1) / twice_variance;
    large |= v[i] >= kLargeV;
  }
  numerics::expm1(v, y);
  for (double& value : y) value *= rate;
  numerics::log1p(y, l);
  if (!large) return;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (v[i] >= kLargeV) l[i] = v[i] + numerics::log(rate);
  }
}

CoarseGrid::CoarseGrid(const Step& step)
    : step_(step), spacing_(std::min(0.5 * step.sigma, step.sigma * step.sigma)) {
  const double left = -17 * step.sigma;
  const double right = 1 + std::max(28 * step.sigma, 12 * step.sigma + 16);
  const auto below = static_cast<std::ptrdiff_t>(std::ceil(-left / spacing_));
  const auto above = static_cast<std::ptrdiff_t>(std::ceil(right / spacing_));
  const auto size = static_cast<std::size_t>(below + above + 1);
  x_.resize(size);
  l_.resize(size);
  square_.resize(size);
  for (std::size_t i = 0; i < size; ++i) {
    x_[i] = (static_cast<double>(i) - static_cast<double>(below)) * spacing_;
  }
  step_.log_ratios(x_, square_, l_, l_);
  for (std::size_t i = 0; i < size; ++i) square_[i] = x_[i] * x_[i] / (2 * step.sigma * step.sigma);
}

std::size_t CoarseGrid::first_at_least(double x) const noexcept {
  return static_cast<std::size_t>(std::lower_bound(x_.begin(), x_.end(), x) - x_.begin());
}

Window CoarseGrid::window(double c, Tolerance tolerance) const noexcept {
  const double w = step_.weight(c);
  const double drop = 0.6931471805599453 * tolerance.density;
  const auto log_f = [&](std::size_t i) { return w * l_[i] - square_[i]; };

  // A right tail is charged after tilting where f only decreases, otherwise by its probability.
  const double falls = step_.direction == Direction::kRemove ? 1 + c + step_.sigma : step_.sigma;
  const double unlikely = 1 + step_.sigma * std::sqrt(2 * 0.6931471805599453 * tolerance.tail);
  const std::size_t from = first_at_least(std::min(falls, unlikely));
  double peak = -INFINITY;
  std::size_t right = x_.size();
  for (std::size_t i = 0; i < x_.size(); ++i) {
    const double here = log_f(i);
    peak = std::max(peak, here);
    if (i >= from && here <= peak - drop) {
      right = i;
      break;
    }
  }
  if (right == x_.size()) return {};
  std::size_t left = 0;
  while (left < right && log_f(left) <= peak - drop) ++left;
  if (left == 0 || x_[left - 1] >= 0) return {};
  return {x_[left - 1], x_[right], true};
}

double CoarseGrid::log_mass(double c, const Window& window) const noexcept {
  const double w = step_.weight(c);
  const std::size_t first = first_at_least(window.left);
  const std::size_t last = std::min(first_at_least(window.right) + 1, x_.size());
  scratch_.resize(x_.size());
  const std::span<double> terms(scratch_.data(), last - first);
  double peak = -INFINITY;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    terms[i] = w * l_[first + i] - square_[first + i];
    peak = std::max(peak, terms[i]);
  }
  for (double& term : terms) term -= peak;
  numerics::exp(terms, terms);
  double sum = 0;
  for (const double term : terms) sum += term;
  return peak + numerics::log(sum * spacing_ / step_.sigma) - kLogSqrtTwoPi;
}

Window CoarseGrid::bulk(double c, const Window& window) const noexcept {
  const double w = step_.weight(c);
  const std::size_t first = first_at_least(window.left);
  const std::size_t last = std::min(first_at_least(window.right), x_.size() - 1);
  double peak = -INFINITY;
  for (std::size_t i = first; i <= last; ++i) peak = std::max(peak, w * l_[i] - square_[i]);
  std::size_t left = first;
  std::size_t right = last;
  while (left < right && w * l_[left] - square_[left] < peak - 16) ++left;
  while (right > left && w * l_[right] - square_[right] < peak - 16) --right;
  return {std::max(window.left, x_[left > 0 ? left - 1 : 0]),
          std::min(window.right, x_[std::min(right + 1, x_.size() - 1)]), true};
}

}  // namespace discreet::accounting::contour
