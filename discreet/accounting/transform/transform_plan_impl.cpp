#include "discreet/accounting/transform/transform_plan_impl.h"

#include <algorithm>
#include <cmath>

#include "discreet/accounting/transform/loss_grid_impl.h"
#include "discreet/accounting/transform/subsampled_gaussian_impl.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting::transform_impl {

// log sup_{y > 0} (1 - e^{-y}) e^{-c y}
double log_kernel(double c) { return -numerics::log1p(c) - c * numerics::log1p(1 / c); }

// The largest double with at most 20 significant bits that is <= h: multiples stay exact.
double with_20_bits(double h) {
  int exponent;
  const double mantissa = std::frexp(h, &exponent);
  return std::ldexp(std::floor(std::ldexp(mantissa, 20)), exponent - 20);
}

// What a finite loss cannot exceed: in the add direction each step's is at most -k log(1 - q).
double largest_loss(const Composition& steps, Direction direction, std::uint64_t group) {
  double total = 0;
  for (const GaussianSteps& event : steps.gaussians) {
    if (direction == Direction::kRemove || event.rate >= 1) return kInfinity;
    total -= static_cast<double>(event.count) *
             (static_cast<double>(group) * numerics::log1p(-event.rate));
  }
  for (const ExplicitSteps& event : steps.explicits)
    total += static_cast<double>(event.count) * event.epsilon;
  const auto terms = static_cast<double>(steps.gaussians.size() + steps.explicits.size());
  return total * (1 + 4 * kU * (terms + 2));
}

// The mass of infinite loss that explicit steps bring.
Interval failure_mass(const Composition& steps) {
  double log_finite = 0;
  for (const ExplicitSteps& event : steps.explicits)
    log_finite += static_cast<double>(event.count) * numerics::log1p(-event.delta);
  const double mass = -numerics::expm1(log_finite);
  const double rounding = 8 * kU * (static_cast<double>(steps.explicits.size()) + 1);
  return {mass * (1 - rounding), mass * (1 + rounding)};
}

// ---------------------------------------------------------------- planning: widths only, no
// soundness

namespace {

// One Gaussian event on nodes of x: losses and log-weights under A.
struct Nodes {
  std::vector<double> loss, log_weight;
  double cumulant(double order) const {
    double top = -kInfinity, sum = 0;
    for (std::size_t i = 0; i < loss.size(); ++i)
      top = std::max(top, order * loss[i] + log_weight[i]);
    for (std::size_t i = 0; i < loss.size(); ++i)
      sum += numerics::exp(order * loss[i] + log_weight[i] - top);
    return top + numerics::log(sum);
  }
};

Nodes nodes_of(const GaussianSteps& event, Direction direction, double tail, std::uint64_t group) {
  const SubsampledGaussian pair(event.rate, event.sigma, direction, group,
                                negligible_part(event.rate, group, tail));
  const Interval range = pair.outcome_range(tail);
  const double wanted = std::min(event.sigma / 3, event.sigma * event.sigma);
  const double count = std::clamp(std::ceil((range.upper - range.lower) / wanted), 16.0, 400.0);
  const double dx = (range.upper - range.lower) / count;
  Nodes nodes;
  for (double i = 0; i <= count; ++i) {
    const double x = range.lower + i * dx;
    const double loss = pair.loss_at(x);
    const bool remove = direction == Direction::kRemove;
    const double z = x / event.sigma;
    nodes.loss.push_back(remove ? loss : -loss);
    nodes.log_weight.push_back((remove ? loss : 0) - z * z / 2);
  }
  const double total = nodes.cumulant(0);
  for (double& w : nodes.log_weight) w -= total;
  return nodes;
}

double explicit_cumulant(const ExplicitSteps& event, double order) {
  const double e = event.epsilon;
  const double high = std::max(e * order, -e * (1 + order));
  const double low = std::min(e * order, -e * (1 + order));
  return high + numerics::log1p(numerics::exp(low - high)) - numerics::log1p(numerics::exp(-e)) +
         numerics::log1p(-event.delta);
}

}  // namespace

Table make_table(const Composition& steps, Direction direction, double tail, std::uint64_t group) {
  Table table;
  std::vector<Nodes> nodes;
  double variance = 0;
  for (const GaussianSteps& event : steps.gaussians) {
    nodes.push_back(nodes_of(event, direction, tail, group));
    double mean = 0, square = 0;
    const Nodes& n = nodes.back();
    for (std::size_t i = 0; i < n.loss.size(); ++i) {
      const double w = numerics::exp(n.log_weight[i]);
      mean += w * n.loss[i];
      square += w * n.loss[i] * n.loss[i];
      table.max_loss = std::max(table.max_loss, std::abs(n.loss[i]));
    }
    const double count = static_cast<double>(event.count);
    variance += count * std::max(square - mean * mean, 0.0);
    table.steps += count;
  }
  for (const ExplicitSteps& event : steps.explicits) {
    variance += static_cast<double>(event.count) * event.epsilon * event.epsilon;
    table.max_loss = std::max(table.max_loss, event.epsilon);
  }
  const double deviation = std::max(std::sqrt(variance), 1e-12);
  const double low = 0.02 / std::max(deviation, 1.0);
  double high = 60 / std::min(deviation, 1.0);
  // Near the end of a bounded loss the tilt grows without limit.
  const double bound = largest_loss(steps, direction, group);
  if (bound < kInfinity) high = std::max(high, 2000 / bound);
  constexpr int kOrders = 64;
  const double ratio = numerics::exp(numerics::log(high / low) / (kOrders - 1));
  for (int i = 0; i < kOrders; i += 4) {
    table.order.push_back(-high * numerics::exp(-i * numerics::log(ratio)));
  }
  table.order.push_back(0);
  for (double order = low; order < high * 1.0001; order *= ratio) table.order.push_back(order);
  for (const double order : table.order) {
    double total = 0;
    for (std::size_t k = 0; k < nodes.size(); ++k)
      total += static_cast<double>(steps.gaussians[k].count) * nodes[k].cumulant(order);
    for (const ExplicitSteps& event : steps.explicits)
      total += static_cast<double>(event.count) * explicit_cumulant(event, order);
    table.cumulant.push_back(total);
  }
  return table;
}

double chernoff_epsilon(const Table& table, double log_delta) {
  double best = kInfinity;
  for (std::size_t i = 0; i < table.order.size(); ++i) {
    const double c = table.order[i];
    if (c > 0) best = std::min(best, (table.cumulant[i] + log_kernel(c) - log_delta) / c);
  }
  return best;
}

double chernoff_log_delta(const Table& table, double epsilon) {
  double best = 0;
  for (std::size_t i = 0; i < table.order.size(); ++i) {
    const double c = table.order[i];
    if (c > 0) best = std::min(best, table.cumulant[i] + log_kernel(c) - c * epsilon);
  }
  return best;
}

// Euclidean norm of m -> e^{-c h m} min(1, h (m + 1)), m >= 0: a bound of the weights that delta
// gives to the tilted masses, relative to e^{-c epsilon}.
double weight_norm(double c, double h) {
  const double a = numerics::exp(-c * h), gap = -numerics::expm1(-2 * c * h);
  return std::min(1 / std::sqrt(gap), h * std::sqrt((1 + a * a) / gap) / gap) * (1 + 1e-9);
}

// The order of the saddle: - d log delta / d epsilon, roughly.
double sharpness_at(const Table& table, double epsilon) {
  double best = kInfinity, sharpness = 0;
  for (std::size_t i = 0; i < table.order.size(); ++i) {
    const double c = table.order[i];
    if (c <= 0) continue;
    const double value = table.cumulant[i] + log_kernel(c) - c * epsilon;
    if (value < best) {
      best = value;
      sharpness = c;
    }
  }
  return sharpness;
}

// The tilt whose window is narrowest when both tilted tails may cost `share` of delta and round-off
// should cost less than `noise_share`. The saddle
// itself can be a poor tilt: far-off outcomes make the cumulant explode just above it.
Plan make_plan(const Table& table, double epsilon, double log_delta, double share,
               double noise_share, double h) {
  const double least = chernoff_log_delta(table, epsilon);
  std::vector<double> cumulant = table.cumulant;
  for (std::size_t i = 0; i < cumulant.size(); ++i) {
    const double c = table.order[i];  // what the grid adds
    cumulant[i] += table.steps * std::abs(c * (c + 1)) * h * h / 10 *
                   numerics::exp(std::min(std::abs(c) * h, 30.0));
  }
  Plan best;
  double best_cost = kInfinity;
  for (std::size_t i = 0; i < table.order.size(); ++i) {
    const double c = table.order[i];
    if (c <= 0) continue;
    const double amplification = table.cumulant[i] + log_kernel(c) - c * epsilon - log_delta;
    if (amplification > least - log_delta + 12) continue;
    const double log_tail = numerics::log(share) - amplification;
    Plan plan{c, 0, 0, -kInfinity, kInfinity};
    for (std::size_t j = 0; j < table.order.size(); ++j) {
      if (j == i) continue;
      const double gap = table.order[j] - c;
      const double edge = (cumulant[j] - cumulant[i] - log_tail) / gap;
      if (gap > 0 && edge < plan.high) {
        plan.high = edge;
        plan.right = table.order[j];
      }
      if (gap < 0 && edge > plan.low) {
        plan.low = edge;
        plan.left = table.order[j];
      }
    }
    const double noise = 2e-14 * (table.steps + 1) * weight_norm(c, h) *
                         numerics::exp(amplification - log_kernel(c));
    const double cost = (plan.high - plan.low) * (1 + 0.02 * std::max(0.0, amplification)) *
                        (1 + noise / noise_share);
    if (cost < best_cost) {
      best_cost = cost;
      best = plan;
    }
  }
  return best;
}

// The grid whose laws differ by about `width` in epsilon: they differ by h^2/4 in variance per
// step.
double grid_for(const Composition& steps, const Table& table, double sharpness, double width,
                double coarsest) {
  double h = std::sqrt(6.2 * width / (std::max(table.steps, 1.0) * (sharpness + 1)));
  h = std::min({h, coarsest, 0.7 / sharpness});
  const ExplicitSteps* main = nullptr;
  for (const ExplicitSteps& event : steps.explicits)
    if (event.epsilon > 0 && (main == nullptr || event.count > main->count)) main = &event;
  if (main != nullptr) h = main->epsilon / std::ceil(main->epsilon / h);
  return with_20_bits(h);
}

double total_steps(const Composition& steps) {
  double total = 0;
  for (const GaussianSteps& event : steps.gaussians) total += static_cast<double>(event.count);
  return std::max(total, 1.0);
}

}  // namespace discreet::accounting::transform_impl
