#include "discreet/accounting/tradeoff/gdp.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {

using numerics::exp;
using numerics::expm1;
using numerics::log;
using numerics::normal_cdf;

namespace {

constexpr double kUnit = 0x1p-53;
constexpr double kSqrtHalf = 0.70710678118654752440;

void require(bool good, const char* op, const char* name, double value, const char* range) {
  if (!good) {
    invalid_input(op, "{} is {}; it must be {}", name, value, range);
  }
}

// phi(x)/Phi(x) <= 1 + |x| for x < 0 and < 1 above, so an error d of the argument costs this
// factor.
double sensitivity(double x) { return x < 0 ? 1 - x : 1; }

}  // namespace

Interval gaussian_delta(double mu, double epsilon) {
  require(mu >= 0 && std::isfinite(mu), "gaussian_delta", "mu", mu, "finite and at least 0");
  require(epsilon >= 0 && std::isfinite(epsilon), "gaussian_delta", "epsilon", epsilon,
          "finite and at least 0");
  if (mu == 0) return {0, 0};
  const double ratio = epsilon / mu;
  const double a = 0.5 * mu - ratio;
  const double b = -0.5 * mu - ratio;
  const double shift = kUnit * (2 * ratio + std::abs(b));
  const double first = normal_cdf(a);
  const double first_error = first * (3 * kUnit + 1.01 * shift * sensitivity(a));
  double second;
  double second_error;
  if (epsilon < 700 && b > -37) {
    second = exp(epsilon) * normal_cdf(b);
    second_error = second * (6 * kUnit + 1.01 * shift * sensitivity(b));
  } else {
    const double log_tail = numerics::log_erfc(-b * kSqrtHalf);
    second = 0.5 * exp(epsilon + log_tail);
    second_error = second * (6 * kUnit + 1.01 * (kUnit * (10 * std::abs(log_tail) + epsilon) +
                                                 2 * shift * sensitivity(b)));
  }
  const double delta = first - second;
  // Subnormal results carry an absolute error instead.
  const double error = 1.01 * (first_error + second_error) + kUnit * std::abs(delta) + 1e-307;
  return {std::max(0.0, delta - error), std::min(1.0, std::max(0.0, delta) + error)};
}

Interval gaussian_epsilon(double mu, double delta) {
  require(mu >= 0 && std::isfinite(mu), "gaussian_epsilon", "mu", mu, "finite and at least 0");
  require(delta > 0 && delta < 1, "gaussian_epsilon", "delta", delta, "in (0, 1)");
  if (gaussian_delta(mu, 0).upper <= delta) return {0, 0};
  // Concentrated DP: this epsilon suffices, up to rounding.
  double upper = 1.0001 * (0.5 * mu * mu + mu * std::sqrt(-2 * log(delta))) + 1e-300;
  if (!std::isfinite(upper) || !(gaussian_delta(mu, upper).upper <= delta)) {
    fail(ErrorCode::kAccountantOverflow, "gaussian_epsilon",
         "no epsilon can be certified for mu = {} and delta = {}; use more noise", mu, delta);
  }
  // Bisection on the predicate itself: what is returned has passed its own test.
  const auto bisect = [&](double low, double high, auto&& accepts_high) {
    for (int i = 0; i < 200; ++i) {
      const double middle = 0.5 * (low + high);
      if (!(middle > low && middle < high) || high - low < 1e-15 * high) break;
      (accepts_high(middle) ? high : low) = middle;
    }
    return Interval{low, high};
  };
  upper = bisect(0, upper, [&](double e) { return gaussian_delta(mu, e).upper <= delta; }).upper;
  const double lower =
      bisect(0, upper, [&](double e) { return !(gaussian_delta(mu, e).lower >= delta); }).lower;
  return {lower, upper};
}

CltMu clt_mu_poisson(std::span<const GaussianSteps> steps) {
  double sum = 0;
  for (const auto& s : steps) {
    sum += static_cast<double>(s.count) * s.rate * s.rate * expm1(1 / (s.sigma * s.sigma));
  }
  return CltMu(std::sqrt(sum));
}

CltMu clt_mu_uniform(std::span<const GaussianSteps> steps) {
  double sum = 0;
  for (const auto& s : steps) {
    const double growth = exp(1 / (s.sigma * s.sigma));
    sum += static_cast<double>(s.count) * s.rate * s.rate *
           (growth * normal_cdf(1.5 / s.sigma) + 3 * normal_cdf(-0.5 / s.sigma) - 2);
  }
  return CltMu(std::sqrt(2 * std::max(0.0, sum)));
}

CltEpsilon clt_epsilon(CltMu mu, double delta) {
  if (!std::isfinite(mu.value())) return CltEpsilon(std::numeric_limits<double>::infinity());
  const Interval e = gaussian_epsilon(mu.value(), delta);
  return CltEpsilon(0.5 * (e.lower + e.upper));
}

}  // namespace discreet::accounting
