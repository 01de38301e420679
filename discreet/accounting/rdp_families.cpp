// The curves that are known at integer orders only, and Laplace.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "discreet/accounting/rdp_impl.h"
#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {

using numerics::exp;
using numerics::expm1;
using numerics::log;
using numerics::log1p;

namespace {

Interval widened(double value, double ulps) {
  return {value * (1 - ulps * kUnit), value * (1 + ulps * kUnit)};
}

// log(a/(2a-1) e^{(a-1)/b} + (a-1)/(2a-1) e^{-a/b}).
Interval laplace_log_moment(double scale, double order) {
  const double up = (order - 1) / scale;
  const double down = order / scale;
  const double left = order / (2 * order - 1);
  const double right = (order - 1) / (2 * order - 1);
  if (up > 1) {
    const double value = up + log(left + right * exp(-up - down));
    return {value - 12 * kUnit * (up + 1), value + 12 * kUnit * (up + 1)};
  }
  // The terms of first order cancel, so the error is relative to them and not to the result.
  const double raise = left * expm1(up);
  const double lower = right * expm1(-down);
  const double value = log1p(raise + lower);
  const double error = 12 * kUnit * (raise - lower + value);
  return {std::max(0.0, value - error), value + error};
}

class FullBatchLaplace final : public RenyiCurve {
 public:
  explicit FullBatchLaplace(double scale) : scale_(scale) {}

 private:
  LogMoment evaluate(double order) override {
    const double up = (order - 1) / scale_;
    const double ratio = exp(-up - order / scale_) * (order - 1) / order;
    return {laplace_log_moment(scale_, order), (1 - ratio) / (1 + ratio) / scale_};
  }
  double scale_;
};

class SubsampledLaplace final : public IntegerCurve {
 public:
  SubsampledLaplace(double rate, double scale) : rate_(rate), scale_(scale) {}

 private:
  Interval at_integer(int order) override {
    return binomial_log_moment(rate_, order, [&](int i) { return laplace_log_moment(scale_, i); });
  }
  double rate_;
  double scale_;
};

class Skellam final : public IntegerCurve {
 public:
  Skellam(double rate, double variance, double l1, double l2)
      : rate_(rate), variance_(variance), l1_(l1), l2_(l2) {}

 private:
  Interval moment(int order) const {
    const double square = l2_ * l2_;
    const double gaussian = order * square / (2 * variance_);
    const double fine = ((2.0 * order - 1) * square + 6 * l1_) / (4 * variance_ * variance_);
    const double coarse = 3 * l1_ / (2 * variance_);
    return widened((order - 1) * (gaussian + std::min(fine, coarse)), 12);
  }
  Interval at_integer(int order) override {
    return binomial_log_moment(rate_, order, [&](int i) { return moment(i); });
  }
  double rate_;
  double variance_;
  double l1_;
  double l2_;
};

class FixedSizeReplace final : public IntegerCurve {
 public:
  FixedSizeReplace(double rate, double sigma)
      : rate_(rate), quarter_(2 / (sigma * sigma)), central_(kMaxBinomialOrder + 2, kInfinity) {
    for (int l = 2; l <= kMaxBinomialOrder + 1; l += 2) {
      if (!(l * (l - 1) * quarter_ < kMaxExponent)) break;
      central_[static_cast<std::size_t>(l)] = central_moment(l);
    }
  }

 private:
  static constexpr double kMaxExponent = 300;

  // E_Q[(P/Q - 1)^l] = sum_i (-1)^i C(l,i) e^{i(i-1) 2/sigma^2}, rounded up.
  double central_moment(int l) const {
    double sum = 0;
    double error = 0;
    double binomial = 1;
    for (int i = 0; i <= l; ++i) {
      const double exponent = i * (i - 1.0) * quarter_;
      const double term = binomial * exp(exponent);
      sum += i % 2 == 0 ? term : -term;
      error += term * kUnit * (4 * exponent + 2.0 * i + l + 8);
      binomial = binomial * (l - i) / (i + 1);
    }
    return std::max(0.0, sum) + 1.01 * error;
  }

  Interval at_integer(int order) override {
    std::vector<double> exponents;
    std::vector<double> errors;
    const double log_rate = log(rate_);
    const double log2 = log(2.0);
    double binomial = order;
    for (int j = 2; j <= order; ++j) {
      binomial = binomial * (order - j + 1) / j;
      const double power = j * (j - 1.0) * quarter_;  // (j-1) r(j), r at twice the sensitivity
      double factor = log2 + power;
      if (j == 2) {
        factor = std::min(factor, 2 * log2 + (power < 700 ? log(expm1(power)) : power));
      } else {
        const auto index = static_cast<std::size_t>(j);
        const double low = central_[index - index % 2];
        const double high = central_[index + index % 2];
        if (low > 0 && std::isfinite(high)) {
          factor = std::min(factor, 2 * log2 + 0.5 * (log(low) + log(high)));
        }
      }
      const double log_choose = log(binomial);
      exponents.push_back(log_choose + j * log_rate + factor);
      errors.push_back(kUnit *
                       (2.0 * j + 8 + 8 * (log_choose - j * log_rate + std::abs(factor) + power)));
    }
    return log1p_exp(log_sum_exp(exponents, errors));
  }
  double rate_;
  double quarter_;               // r(j) / j
  std::vector<double> central_;  // at even indices; +inf where the cancellation is not worth it
};

}  // namespace

std::unique_ptr<RenyiCurve> poisson_laplace_curve(double rate, double scale) {
  require_rate("poisson_laplace_curve", rate);
  require_scale("poisson_laplace_curve", "the scale", scale);
  if (rate == 1) return std::make_unique<FullBatchLaplace>(scale);
  return std::make_unique<SubsampledLaplace>(rate, scale);
}

std::unique_ptr<RenyiCurve> poisson_skellam_curve(double rate, double variance, double l1,
                                                  double l2) {
  constexpr const char* kOp = "poisson_skellam_curve";
  require_rate(kOp, rate);
  require_scale(kOp, "the variance", variance);
  require_scale(kOp, "the L1 bound", l1);
  require_scale(kOp, "the L2 bound", l2);
  if (l1 < l2) {
    throw Error(ErrorCode::kInvalidDpConfig, kOp,
                fmt::format("the L1 bound {} is below the L2 bound {}; an integer vector's L1 norm "
                            "is at least its L2 norm, so give a larger l1",
                            l1, l2));
  }
  return std::make_unique<Skellam>(rate, variance, l1, l2);
}

std::unique_ptr<RenyiCurve> fixed_size_replace_curve(double rate, double sigma) {
  require_rate("fixed_size_replace_curve", rate);
  require_scale("fixed_size_replace_curve", "sigma", sigma);
  if (rate == 1) return poisson_gaussian_curve(1, 0.5 * sigma);
  return std::make_unique<FixedSizeReplace>(rate, sigma);
}

std::unique_ptr<RenyiCurve> fixed_size_add_remove_curve(double rate, double sigma) {
  require_rate("fixed_size_add_remove_curve", rate);
  require_scale("fixed_size_add_remove_curve", "sigma", sigma);
  return poisson_gaussian_curve(rate, 0.5 * sigma);
}

}  // namespace discreet::accounting
