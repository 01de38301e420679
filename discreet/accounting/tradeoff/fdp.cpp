#include "discreet/accounting/tradeoff/fdp.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "discreet/accounting/pld.h"
#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {

namespace {

constexpr double kUnit = 0x1p-53;

void require(bool good, const char* op, const char* name, double value, const char* range) {
  if (!good) {
    invalid_input(op, "{} is {}; it must be {}", name, value, range);
  }
}

}  // namespace

TradeoffCurve::TradeoffCurve(const std::function<double(double)>& delta_upper,
                             std::span<const double> epsilons) {
  require(!epsilons.empty(), "TradeoffCurve", "the number of epsilons", 0, "of at least 1");
  for (const double epsilon : epsilons) {
    require(epsilon >= 0, "TradeoffCurve", "epsilon", epsilon, "of at least 0");
    lines_.push_back({numerics::exp(epsilon), std::min(1.0, delta_upper(epsilon))});
  }
}

double TradeoffCurve::operator()(double alpha) const {
  require(alpha >= 0 && alpha <= 1, "TradeoffCurve", "alpha", alpha, "in [0, 1]");
  double best = 0;
  for (const auto& line : lines_) {
    // A line through smaller numbers than the exact ones: slack for e^epsilon, two sums, a product.
    const double steep = (1 - line.delta) - line.growth * alpha;
    const double flat = ((1 - line.delta) - alpha) / line.growth;
    best = std::max({best, steep - 8 * kUnit * (1 + line.growth * alpha), flat - 8 * kUnit});
  }
  return best;
}

TradeoffCurve tradeoff_curve(const Composition& steps, int points) {
  require(points >= 2, "tradeoff_curve", "the number of points", points, "of at least 2");
  const double last = certified_epsilon(steps, 1e-12).value.upper;
  std::vector<double> epsilons;
  epsilons.reserve(static_cast<std::size_t>(points));
  for (int i = 0; i < points; ++i) epsilons.push_back(last * i / (points - 1));
  return {[&](double epsilon) { return certified_delta(steps, epsilon).value.upper; }, epsilons};
}

Interval gaussian_tradeoff(double mu, double alpha) {
  require(mu >= 0 && std::isfinite(mu), "gaussian_tradeoff", "mu", mu, "finite and at least 0");
  require(alpha >= 0 && alpha <= 1, "gaussian_tradeoff", "alpha", alpha, "in [0, 1]");
  if (alpha == 0) return {1, 1};
  if (alpha == 1) return {0, 0};
  const double z = -numerics::normal_quantile(alpha);  // Phi^-1(1 - alpha), by symmetry
  const double shifted = z - mu;
  const double error = kUnit * (4 * std::abs(z) + std::abs(shifted));
  return {std::max(0.0, numerics::normal_cdf(shifted - 2 * error) * (1 - 4 * kUnit)),
          std::min(1.0, numerics::normal_cdf(shifted + 2 * error) * (1 + 4 * kUnit))};
}

}  // namespace discreet::accounting
