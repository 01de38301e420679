#include "discreet/accounting/renyi/rdp.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "discreet/accounting/renyi/rdp_impl.h"
#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {

using numerics::exp;
using numerics::expm1;
using numerics::log;
using numerics::log1p;

void require_rate(std::string_view op, double rate) {
  if (!(rate > 0 && rate <= 1)) {
    invalid_config(op, "the sampling rate is {}; it must be in (0, 1]", rate);
  }
}

void require_scale(std::string_view op, std::string_view name, double value) {
  if (!std::isfinite(value)) {
    fail(ErrorCode::kNanInSigma, op, "{} is {}; it must be finite", name, value);
  }
  if (!(value > 0)) {
    invalid_config(op, "{} is {}; it must be positive", name, value);
  }
}

LogMoment RenyiCurve::at(double order) {
  if (!(order > 1 && std::isfinite(order))) {
    invalid_input("RenyiCurve", "the order is {}; it must be finite and above 1", order);
  }
  return evaluate(order);
}

Interval log_sum_exp(std::span<const double> exponents, std::span<const double> errors) {
  if (exponents.empty()) return {-kInfinity, -kInfinity};
  const double peak = *std::max_element(exponents.begin(), exponents.end());
  if (!std::isfinite(peak)) return {peak, peak};
  double sum = 0;
  double spread = 0;
  for (std::size_t i = 0; i < exponents.size(); ++i) {
    const double weight = exp(exponents[i] - peak);
    sum += weight;
    spread += weight * (errors[i] + kUnit * (peak - exponents[i] + 3));
  }
  const double value = peak + log(sum);
  // e^spread - 1 <= 1.05 spread for the spreads met here; beyond, nothing is claimed.
  const double relative = 1.05 * spread / sum + kUnit * static_cast<double>(exponents.size() + 8);
  if (!(relative < 0.05)) return {-kInfinity, kInfinity};
  const double error = 1.05 * relative + 3 * kUnit * (std::abs(value) + std::abs(peak));
  return {value - error, value + error};
}

Interval log1p_exp(Interval x) {
  const auto softplus = [](double y) { return y > 0 ? y + log1p(exp(-y)) : log1p(exp(y)); };
  return {softplus(x.lower) * (1 - 6 * kUnit), softplus(x.upper) * (1 + 6 * kUnit) + kUnderflow};
}

Interval binomial_log_moment(double rate, int order, const std::function<Interval(int)>& moment) {
  if (rate == 1) return moment(order);
  std::vector<double> exponents;
  std::vector<double> errors;
  const double log_in = log(rate);
  const double log_out = log1p(-rate);
  double binomial = order;
  for (int i = 2; i <= order; ++i) {
    binomial = binomial * (order - i + 1) / i;
    const Interval k = moment(i);
    if (k.upper <= 0) continue;
    if (!std::isfinite(k.upper)) return {-kInfinity, kInfinity};
    // log(e^k - 1), with the interval of k carried through: d log(e^k - 1) = dk / (1 - e^-k).
    const double middle = 0.5 * (k.lower + k.upper);
    const double shrink = -expm1(-middle);
    const double log_choose = log(binomial);
    const double kept = (order - i) * log_out;
    const double drawn = i * log_in;
    const double excess = middle + log(shrink);
    const double size = log_choose + std::abs(kept) + std::abs(drawn) + middle + std::abs(excess);
    exponents.push_back(log_choose + kept + drawn + excess);
    errors.push_back(1.01 * (k.upper - k.lower + kUnit * middle) / shrink +
                     kUnit * (2.0 * i + 8 * size + 8));
  }
  const Interval excess = log_sum_exp(exponents, errors);
  return log1p_exp(excess);
}

Interval IntegerCurve::cached(int order) {
  if (order <= 1) return {0, 0};
  if (upper_[order] == 0) {
    const Interval k = at_integer(order);
    lower_[order] = std::max(0.0, k.lower);
    upper_[order] = k.upper;
  }
  return {lower_[order], upper_[order]};
}

LogMoment IntegerCurve::evaluate(double order) {
  if (order > kMaxBinomialOrder) return {{0, kInfinity}, kInfinity};
  const int below = static_cast<int>(std::floor(order));
  const double part = order - below;
  const Interval left = cached(below);
  if (part == 0) return {left, left.upper - cached(below - 1).upper};
  const Interval right = cached(below + 1);
  const double slope = right.upper - left.upper;
  const double upper = (left.upper * (1 - part) + right.upper * part) * (1 + 6 * kUnit);
  // What the chord says is an upper bound; from below only monotonicity of K is used.
  return {{left.lower, upper}, slope};
}

namespace {

// a(a-1)/(2 sigma^2).
LogMoment full_batch_moment(double sigma, double order) {
  const double variance = sigma * sigma;
  const double value = std::isfinite(2 * variance) ? order * (order - 1) / (2 * variance)
                                                   : 0.5 * (order / sigma) * ((order - 1) / sigma);
  return {{value * (1 - 6 * kUnit), value * (1 + 6 * kUnit) + kUnderflow},
          (order - 0.5) / variance};
}

class FullBatchGaussian final : public RenyiCurve {
 public:
  explicit FullBatchGaussian(double sigma) : sigma_(sigma) {}

 private:
  LogMoment evaluate(double order) override { return full_batch_moment(sigma_, order); }
  double sigma_;
};

class DiscreteGaussian final : public IntegerCurve {
 public:
  DiscreteGaussian(double rate, double sigma) : rate_(rate), sigma_(sigma) {}

 private:
  Interval at_integer(int order) override {
    const Interval k = binomial_log_moment(
        rate_, order, [&](int i) { return full_batch_moment(sigma_, i).value; });
    return {k.lower, std::min(k.upper, full_batch_moment(sigma_, order).value.upper)};
  }
  double rate_;
  double sigma_;
};

// The trapezoidal rule with nodes x_i = i * step on E_Q[g^a], g(x) = 1 - q + q e^{(2x-1)/2s^2}.
// Notation and constants as in rdp.md.
class PoissonGaussian final : public RenyiCurve {
 public:
  PoissonGaussian(double rate, double sigma)
      : rate_(rate), sigma_(sigma), integers_(rate, sigma), log_rate_(log(rate)) {
    const double unconstrained = kTwoPi / std::sqrt(2 * kAccuracy);
    const double strip = kTwoPi / (unconstrained * sigma);
    const double angle = std::min(strip, kMaxAngle);
    const double step = strip <= kMaxAngle ? unconstrained * sigma
                                           : kTwoPi * angle * sigma * sigma /
                                                 (kAccuracy + 0.5 * sigma * sigma * angle * angle);
    step_ = static_cast<double>(std::nextafterf(static_cast<float>(step), 0.0F));
    quadrature_ =
        2.1 * exp(0.5 * sigma * sigma * angle * angle - kTwoPi * angle * sigma * sigma / step_);
    first_ = -std::ceil(kTail * sigma / step_);
  }

 private:
  static constexpr double kTwoPi = 6.283185307179586;
  static constexpr double kAccuracy = 40;   // the quadrature error is about 2 e^-40 of the moment
  static constexpr double kMaxAngle = 3.1;  // below pi, where g has zeros
  static constexpr double kTail = 9.5;      // nodes reach this many sigma beyond both modes
  static constexpr double kMaxNodes = 1 << 20;

  LogMoment evaluate(double order) override {
    const LogMoment ceiling = full_batch_moment(sigma_, order);  // D_a is convex in P
    if (order == std::floor(order) && order <= kMaxBinomialOrder) {
      LogMoment moment = integers_.at(order);
      // The search rarely needs the exact slope at an integer; a central chord is good enough.
      if (order < kMaxBinomialOrder) {
        moment.slope =
            0.5 * (moment.slope + integers_.at(order + 1).value.upper - moment.value.upper);
      }
      return moment.value.upper <= ceiling.value.upper
                 ? moment
                 : LogMoment{{moment.value.lower, ceiling.value.upper}, ceiling.slope};
    }
    const double last = std::ceil((order + kTail * sigma_) / step_);
    if (!(last - first_ < kMaxNodes) || !(step_ > 0)) {
      LogMoment chord = integers_.at(order);
      if (!(chord.value.upper <= ceiling.value.upper)) {
        return {{chord.value.lower, ceiling.value.upper}, ceiling.slope};
      }
      return chord;
    }
    LogMoment moment = trapezoid(order, static_cast<std::size_t>(last - first_) + 1);
    moment.value.lower = std::max(0.0, moment.value.lower);
    moment.value.upper = std::min(moment.value.upper, ceiling.value.upper);
    return moment;
  }

  void extend(std::size_t count) {
    const double double_variance = 2 * sigma_ * sigma_;
    const double odds = (1 - rate_) / rate_;
    for (std::size_t i = loss_.size(); i < count; ++i) {
      const double x = (first_ + static_cast<double>(i)) * step_;
      const double v = (2 * x - 1) / double_variance;
      double loss;
      double share;  // p, the posterior probability that the record was drawn
      double slack;
      if (v <= -log_rate_) {
        const double y = rate_ * expm1(v);
        loss = log1p(y);
        share = (y + rate_) / (1 + y);
        slack = std::abs(y) / (1 + y);
      } else {
        const double rest = odds * exp(-v);
        loss = v + log_rate_ + log1p(rest);
        share = 1 / (1 + rest);
        slack = 1;
      }
      loss_.push_back(loss);
      loss_error_.push_back(kUnit * (12 * share * std::abs(v) + 5 * slack + 3 * std::abs(loss)));
      square_.push_back(x * x / double_variance);
    }
  }

  LogMoment trapezoid(double order, std::size_t count) {
    extend(count);
    std::vector<double> exponent(count);
    double peak = -kInfinity;
    for (std::size_t i = 0; i < count; ++i) {
      exponent[i] = order * loss_[i] - square_[i];
      peak = std::max(peak, exponent[i]);
    }
    std::vector<double> weight(count);
    for (std::size_t i = 0; i < count; ++i) weight[i] = exponent[i] - peak;
    numerics::exp(weight, weight);
    double sum = 0;
    double carry = 0;  // Kahan: thousands of nodes, and the sum must keep 1e-15
    double mean_loss = 0;
    double spread = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double term = weight[i] - carry;
      const double next = sum + term;
      carry = (next - sum) - term;
      sum = next;
      mean_loss += weight[i] * loss_[i];
      spread += weight[i] *
                (order * loss_error_[i] +
                 kUnit * (std::abs(order * loss_[i]) + 5 * square_[i] + 2 * std::abs(exponent[i])));
    }
    const double right_end = (first_ + static_cast<double>(count - 1)) * step_;
    const double tails = (weight[count - 1] / (right_end - order) + weight[0] / (-first_ * step_)) *
                         sigma_ * sigma_ / step_ * (1 + 1e-6);
    const double scale = log(step_ / (sigma_ * 2.5066282746310002));
    const double value = peak + scale + log(sum);
    const double error = 1.05 * (spread / sum + kUnit * (std::abs(peak) + 16)) +
                         kUnit * 4 * (std::abs(peak) + std::abs(scale) + std::abs(value));
    return {{value - error - quadrature_, value + error + 1.01 * quadrature_ + tails / sum},
            mean_loss / sum};
  }

  double rate_;
  double sigma_;
  DiscreteGaussian integers_;  // the binomial sum is the same for both
  double log_rate_;
  double step_;
  double quadrature_;
  double first_;  // index of the leftmost node
  std::vector<double> loss_;
  std::vector<double> loss_error_;
  std::vector<double> square_;
};

}  // namespace

std::unique_ptr<RenyiCurve> poisson_gaussian_curve(double rate, double sigma) {
  require_rate("poisson_gaussian_curve", rate);
  require_scale("poisson_gaussian_curve", "sigma", sigma);
  if (rate == 1) return std::make_unique<FullBatchGaussian>(sigma);
  return std::make_unique<PoissonGaussian>(rate, sigma);
}

std::unique_ptr<RenyiCurve> poisson_discrete_gaussian_curve(double rate, double sigma) {
  require_rate("poisson_discrete_gaussian_curve", rate);
  require_scale("poisson_discrete_gaussian_curve", "sigma", sigma);
  if (rate == 1) return std::make_unique<FullBatchGaussian>(sigma);
  return std::make_unique<DiscreteGaussian>(rate, sigma);
}

}  // namespace discreet::accounting
