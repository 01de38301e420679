#include "discreet/unlearning/capacity/calibrator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "discreet/numerics/sum.h"
#include "discreet/unlearning/require_impl.h"

namespace discreet::unlearning {
namespace {

constexpr const char* kOp = "Calibrator";

double quantile_of(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  if (below + 1 >= sorted.size()) return sorted.back();
  const double part = at - static_cast<double>(below);
  return sorted[below] + part * (sorted[below + 1] - sorted[below]);
}

}  // namespace

Calibrator::Calibrator(CalibratorOptions options) : options_(options) {
  if (!(options.quantile > 0 && options.quantile <= 1)) {
    refuse(kOp, "quantile", options.quantile, "a number above 0, at most 1");
  }
  if (options.D_cap) require_positive(kOp, "D_cap", *options.D_cap);
}

void Calibrator::observe(std::span<const double> gradient, std::span<const double> theta) {
  const std::size_t wanted = thetas_.empty() ? theta.size() : thetas_.front().size();
  if (gradient.size() != wanted || theta.size() != wanted) {
    invalid_input(kOp, "the gradient has {} and theta {} elements; both must have {}",
                  gradient.size(), theta.size(), wanted);
  }
  const double norm = numerics::norm_l2(gradient);
  if (!std::isfinite(norm)) refuse(kOp, "the gradient's norm", norm, "a finite gradient");
  if (!std::isfinite(numerics::norm_l2(theta))) {
    invalid_input(kOp, "theta is not finite; give finite parameters");
  }
  thetas_.emplace_back(theta.begin(), theta.end());
  grad_norms_.push_back(norm);
}

CalibrationStats Calibrator::finalize(double gamma,
                                      std::optional<CurvatureBounds> curvature) const {
  require_positive(kOp, "gamma", gamma);
  CalibrationStats stats;
  auto& [G, D, c, C] = stats.constants;
  if (grad_norms_.size() < kFewest) {
    stats.warnings.push_back(
        fmt::format("only {} calibration points, fewer than {}: G = D = c = C = 1 are used",
                    grad_norms_.size(), kFewest));
    stats.N_star = sample_complexity(stats.constants, gamma);
    return stats;
  }

  std::vector<double> sorted = grad_norms_;
  std::sort(sorted.begin(), sorted.end());
  G = quantile_of(sorted, options_.quantile);
  const double limit = kExtreme * quantile_of(sorted, 0.5);
  if (limit > 0 && G > limit) {
    stats.warnings.push_back(fmt::format(
        "extreme gradients: G is clipped from {} to {} times the median norm", G, kExtreme));
    G = limit;
  }

  D = 0;
  std::vector<double> difference(thetas_.front().size());
  for (const auto& theta : thetas_) {
    for (std::size_t i = 0; i < theta.size(); ++i) difference[i] = theta[i] - thetas_.front()[i];
    D = std::max(D, numerics::norm_l2(difference));
  }
  if (options_.D_cap && D > *options_.D_cap) {
    stats.warnings.push_back(fmt::format("D is clamped from {} to D_cap", D));
    D = *options_.D_cap;
  }

  if (curvature && curvature->c > 0 && curvature->c <= curvature->C &&
      std::isfinite(curvature->C)) {
    c = curvature->c;
    C = curvature->C;
  } else {
    stats.warnings.emplace_back("no curvature bounds from L-BFGS: (c, C) = (1, 1) is used");
  }
  stats.N_star = sample_complexity(stats.constants, gamma);
  return stats;
}

void Calibrator::clear() noexcept {
  grad_norms_.clear();
  thetas_.clear();
}

}  // namespace discreet::unlearning
