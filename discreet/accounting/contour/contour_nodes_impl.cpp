#include "discreet/accounting/contour/contour_nodes_impl.h"

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "discreet/accounting/contour/contour_rounding_impl.h"
#include "discreet/accounting/contour/contour_waves_impl.h"

namespace discreet::accounting::contour {
namespace {

constexpr double kLogSqrtTwoPi = 0.91893853320467274178;
// A wave is evaluated directly, then turned by up to 3 strides of 8 dt, then by up to 7 steps of
// dt.
constexpr std::size_t kSteps = 8;
constexpr std::size_t kStrides = 4;
constexpr double kSecondOrder = 1.05;  // products of errors; each error is below 2^-10

// Bound of |computed l - l| at a node, in units of u.
double loss_error(double rate, double log_rate, double v, double y, double l) noexcept {
  if (v >= 600) return 4 * v + 3 * std::abs(l) - 3 * log_rate + 1;
  const double g = 1 + y;
  const double p = std::min(1.0, std::max(0.0, (y + rate) / g));
  return 1.01 * (3 * p * std::abs(v) + 3 * std::abs(y) / g + 2 * std::abs(l));
}

}  // namespace

Nodes::Nodes(const Step& step, double c, double h, std::int64_t first, std::int64_t size)
    : step_(step),
      h_(h),
      first_(first),
      size_(static_cast<std::size_t>(size)),
      padded_((size_ + kWaveBlock - 1) / kWaveBlock * kWaveBlock),
      l_(padded_),
      square_(padded_),
      weight_(padded_),
      d_(padded_) {
  const double w = step.weight(c);
  const double twice_variance = 2 * step.sigma * step.sigma;
  std::vector<double> x(size_), exponent(size_), v(size_), y(size_);
  for (std::size_t i = 0; i < size_; ++i) {
    x[i] = static_cast<double>(first + static_cast<std::int64_t>(i)) * h;  // exact
    square_[i] = x[i] * x[i] / twice_variance;
  }
  step.log_ratios(x, v, y, std::span(l_).first(size_));
  const double log_rate = numerics::log(step.rate);
  double peak = -INFINITY;
  for (std::size_t i = 0; i < size_; ++i) {
    exponent[i] = w * l_[i] - square_[i];
    peak = std::max(peak, exponent[i]);
  }
  for (std::size_t i = 0; i < size_; ++i) weight_[i] = exponent[i] - peak;
  const std::span<double> used(weight_.data(), size_);
  numerics::exp(used, used);
  const double sum = blocked_sum(weight_.data(), padded_);
  const double sign = step.direction == Direction::kRemove ? 1 : -1;  // the loss is sign * l
  double mean = 0;
  for (std::size_t i = 0; i < size_; ++i) mean += weight_[i] * l_[i];
  centre_ = sign * (mean / sum);

  // Weighted means of the rounding errors, in units of u.
  double weight_error = 0, loss = 0, distance = 0;
  for (std::size_t i = 0; i < size_; ++i) {
    d_[i] = sign * l_[i] - centre_;
    const double l_error = loss_error(step.rate, log_rate, v[i], y[i], l_[i]);
    weight_error += weight_[i] * (std::abs(w) * l_error + std::abs(w * l_[i]) + 3 * square_[i] +
                                  std::abs(exponent[i]) + (peak - exponent[i]) + 3);
    loss += weight_[i] * (l_error + std::abs(d_[i]));
    distance += weight_[i] * std::abs(d_[i]);
  }
  loss_error_ = kSecondOrder * kUnit * (loss / sum);
  mean_distance_ = kSecondOrder * (distance / sum);

  const double log_sum = numerics::log(sum);
  const double scale = numerics::log(h / step.sigma) - kLogSqrtTwoPi;
  log_mass_ = peak + (log_sum + scale);
  const double assembling = 2 * std::abs(log_sum) + 4 * std::abs(scale) + 8 +
                            std::abs(log_sum + scale) + std::abs(log_mass_);
  // Weights below the normal range are off by less than 2^-1022 each, and the largest weight is 1.
  mass_error_ =
      kSecondOrder * kUnit * (weight_error / sum + assembling + summation_error(padded_)) +
      0x1p-900;
}

double Nodes::left() const noexcept { return (static_cast<double>(first_) - 0.5) * h_; }
double Nodes::right() const noexcept {
  return (static_cast<double>(first_) + static_cast<double>(size_) - 0.5) * h_;
}

double Nodes::log_sum_upper(double other_c) const {
  const double w = step_.weight(other_c);
  std::vector<double> terms(padded_);
  double peak = -INFINITY;
  double size = 0;
  for (std::size_t i = 0; i < size_; ++i) {
    terms[i] = w * l_[i] - square_[i];
    peak = std::max(peak, terms[i]);
    const double l_error =
        3 * std::abs(
                step_.exponent(static_cast<double>(first_ + static_cast<std::int64_t>(i)) * h_)) +
        3 * std::max(1.0, step_.rate / (1 - step_.rate)) + 4 * std::abs(l_[i]) + 4;
    size = std::max(size, std::abs(w) * l_error + 3 * square_[i]);
  }
  for (std::size_t i = 0; i < size_; ++i) terms[i] -= peak;
  const std::span<double> used(terms.data(), size_);
  numerics::exp(used, used);
  const double sum = blocked_sum(terms.data(), padded_);
  const double value =
      peak + numerics::log(sum) + (numerics::log(h_ / step_.sigma) - kLogSqrtTwoPi);
  return value +
         4 * kUnit * (size + 1000 + std::abs(peak) + std::abs(value) + summation_error(padded_));
}

void Nodes::waves(double dt, std::span<Wave> out) const {
  // Aligned, as vectors that straddle cache lines take twice as long.
  const auto buffer = hwy::AllocateAligned<double>(9 * padded_);
  if (!buffer) throw std::bad_alloc();
  double* next = buffer.get();
  const auto take = [&] { return std::exchange(next, next + padded_); };
  double* const angle = take();
  const auto turned_by = [&](double t, Waves<double> to) {
    for (std::size_t i = 0; i < padded_; ++i) angle[i] = t * d_[i];
    numerics::sin_cos({angle, padded_}, {to.im, padded_}, {to.re, padded_});
  };
  const auto constant = [](Waves<double> w) { return Waves<const double>{w.re, w.im}; };
  const Waves<double> stride{take(), take()}, step{take(), take()};
  const Waves<double> base{take(), take()}, wave{take(), take()};
  turned_by(dt, step);
  if (out.size() > kSteps) turned_by(static_cast<double>(kSteps) * dt, stride);
  const double sum = blocked_sum(weight_.data(), padded_);
  const double adding = summation_error(padded_) + 2;
  for (std::size_t j = 1; j <= out.size(); ++j) {
    const double t = static_cast<double>(j) * dt;
    const std::size_t steps = (j - 1) % kSteps;
    const std::size_t strides = (j - 1) / kSteps % kStrides;
    WaveSum total;
    if (steps > 0) {
      total = turn_and_sum(constant(steps == 1 ? base : wave), constant(step), wave, padded_);
    } else if (strides > 0) {
      total = turn_and_sum(constant(base), constant(stride), base, padded_);
    } else {
      turned_by(t, base);
      total = weigh_and_sum(base, weight_.data(), padded_);
    }
    // Direct: 3u and the angle's u t|d|; a turn adds sqrt(5)u + 2u and its own angle's u |d|.
    const double turns = static_cast<double>(steps + strides);
    const double trigonometry = 3 + 4.24 * turns + t * mean_distance_;
    out[j - 1] = {total.re / sum, total.im / sum,
                  mass_error_ + t * loss_error_ + kSecondOrder * kUnit * (trigonometry + adding)};
  }
}

}  // namespace discreet::accounting::contour
