// The curves that are known at integer orders only, and Laplace.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "discreet/accounting/renyi/rdp_impl.h"
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

// log(A + C(a,2) q^2 W) with A of the Poisson pair at sigma / 2 and W = E_Q[(P1/Q - 1)_+^2]
// (rdp.md, section 2).
class FixedSizeReplace final : public RenyiCurve {
 public:
  FixedSizeReplace(double rate, double sigma)
      : one_sided_(poisson_gaussian_curve(rate, 0.5 * sigma)),
        full_batch_(poisson_gaussian_curve(1, 0.5 * sigma)),
        log_square_(2 * log(rate) + log_excess(sigma)),
        slack_(8 * kUnit * (2 * std::abs(log(rate)) + std::abs(log_excess(sigma)) + 8)) {}

 private:
  // log W, rounded up: W = e^v Phi(3/sigma) + 3 Phi(-1/sigma) - 2 < e^v - 1 with v = 4/sigma^2.
  static double log_excess(double sigma) {
    const double v = 4 / (sigma * sigma);
    if (!(v < 700)) return v * (1 + 8 * kUnit);
    const double grown = exp(v) * numerics::normal_cdf(3 / sigma);
    const double value = grown + 3 * numerics::normal_cdf(-1 / sigma) - 2;
    const double error = 8 * kUnit * (grown * (v + 1) + 5);
    return log(std::min(value + error, expm1(v) * (1 + 8 * kUnit)));
  }

  LogMoment evaluate(double order) override {
    const LogMoment ceiling = full_batch_->at(order);  // D_a is jointly quasi-convex
    const LogMoment one = one_sided_->at(order);
    const double c = order - 1;
    const double added = log_square_ + log(0.5 * order * c);
    const double error = slack_ + 8 * kUnit * std::abs(log(0.5 * order * c));
    // k + log(1 + e^{x-k}) grows with k. The derivative of log(1 + e^d) is at most log(1 + e^d), so
    // an error of d is a relative one of the result.
    const double k = one.value.upper;
    const double distance = added + error - k;
    const double more = log1p_exp({distance, distance}).upper;
    const double upper = (k + more * (1 + 4 * kUnit * (std::abs(distance) + 2))) * (1 + 4 * kUnit);
    if (!(upper <= ceiling.value.upper))
      return {{one.value.lower, ceiling.value.upper}, ceiling.slope};
    const double share = 1 / (1 + exp(one.value.upper - added));
    return {{one.value.lower, upper},
            one.slope * (1 - share) + share * (2 * order - 1) / (order * c)};
  }

  std::unique_ptr<RenyiCurve> one_sided_;
  std::unique_ptr<RenyiCurve> full_batch_;
  double log_square_;  // log(q^2 W)
  double slack_;       // its error
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
    invalid_config(kOp,
                   "the L1 bound {} is below the L2 bound {}; an integer vector's L1 norm "
                   "is at least its L2 norm, so give a larger l1",
                   l1, l2);
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
