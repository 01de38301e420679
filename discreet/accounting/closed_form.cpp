#include "discreet/accounting/closed_form.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "discreet/accounting/transform/subsampled_gaussian_impl.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Steps that are one step of rate q, with the noise multiplier known up to rounding.
struct OneStep {
  double q;
  double sigma_low, sigma_high;
};

std::optional<OneStep> as_one_step(const Composition& steps) {
  if (!steps.explicits.empty() || steps.gaussians.empty()) return std::nullopt;
  const GaussianSteps& only = steps.gaussians.front();
  if (steps.gaussians.size() == 1 && only.count == 1)
    return OneStep{only.rate, only.sigma, only.sigma};
  double precision = 0;
  for (const GaussianSteps& event : steps.gaussians) {
    if (event.rate != 1) return std::nullopt;
    precision += static_cast<double>(event.count) / (event.sigma * event.sigma);
  }
  const double sigma = 1 / std::sqrt(precision);
  const double error = kU * (static_cast<double>(steps.gaussians.size()) + 8);
  return OneStep{1, sigma * (1 - error), sigma * (1 + error)};
}

// Bounds of the divergence at the outcome whose loss is epsilon.
Interval divergence(double q, double sigma, Direction direction, double epsilon) {
  const SubsampledGaussian pair(q, sigma, direction);
  const bool remove = direction == Direction::kRemove;
  const double loss = remove ? epsilon : -epsilon;
  // No outcome has an add-loss above -log(1 - q).
  if (!remove && q < 1 && epsilon >= -numerics::log1p(-q) * (1 + 8 * kU)) return {0, 0};
  const Edge edge = pair.edge_at_loss(loss);
  const auto region = [&](const Edge& at) {
    return remove ? pair.cell(at, pair.edge_at(kInfinity))
                  : pair.cell(pair.edge_at(-kInfinity), at);
  };
  const Mass excess = pair.excess(region(edge), pair.slope_at(loss));
  const double factor = remove ? 1 : numerics::exp(epsilon);
  const double value = factor * (remove ? excess.value : -excess.value);
  const double error = factor * excess.error + 8 * kU * std::abs(value);
  // The test {x beyond the edge} is optimal for a loss within loss_error of epsilon only. A better
  // test can gain only between the two edges, and at most loss_error of the A-mass there.
  double gain = edge.loss_error;
  const double shift = 2 * edge.loss_error * sigma * sigma / edge.sharpness;
  if (shift < 0.1 * sigma) {
    const Mass tail = pair.a_mass(region(pair.edge_at(remove ? edge.x - shift : edge.x + shift)));
    gain *= 2 * (tail.value + tail.error);
  }
  return {std::max(value - error, 0.0), std::min(value + error + 2 * gain, 1.0)};
}

Interval divergence(const OneStep& step, Direction direction, double epsilon) {
  const Interval noisy = divergence(step.q, step.sigma_high, direction, epsilon);
  if (step.sigma_low == step.sigma_high) return noisy;
  return {noisy.lower, divergence(step.q, step.sigma_low, direction, epsilon).upper};
}

}  // namespace

std::optional<Interval> closed_form_delta(const Composition& steps, Direction direction,
                                          double epsilon) {
  const auto step = as_one_step(steps);
  if (!step) return std::nullopt;
  const Interval delta = divergence(*step, direction, epsilon);
  if (!(delta.lower <= delta.upper)) return std::nullopt;
  return delta;
}

std::optional<Interval> closed_form_epsilon(const Composition& steps, Direction direction,
                                            double delta) {
  const auto step = as_one_step(steps);
  if (!step) return std::nullopt;
  const auto at = [&](double epsilon) { return divergence(*step, direction, epsilon); };
  Interval epsilon{0, 0};
  if (at(0).upper <= delta) return epsilon;
  double top = 1;
  while (!(at(top).upper <= delta)) {
    top *= 2;
    if (top > 600) return std::nullopt;
  }
  const auto bisect = [&](double left, double right, auto&& goes_right) {
    for (int i = 0; i < 200; ++i) {
      const double middle = left + 0.5 * (right - left);
      if (middle <= left || middle >= right) break;
      (goes_right(middle) ? left : right) = middle;
    }
    return Interval{left, right};
  };
  epsilon.upper = bisect(0, top, [&](double e) { return !(at(e).upper <= delta); }).upper;
  if (at(0).lower >= delta) {
    epsilon.lower = bisect(0, top, [&](double e) { return at(e).lower >= delta; }).lower;
  }
  return epsilon;
}

}  // namespace discreet::accounting
