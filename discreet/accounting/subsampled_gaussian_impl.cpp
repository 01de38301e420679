#include "discreet/accounting/subsampled_gaussian_impl.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "discreet/numerics/elementary.h"

namespace discreet::accounting {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSqrt2 = 1.4142135623730951;

Mass between(const Tail& left, const Tail& right) {
  double value, error = left.error + right.error;
  if (left.z >= 0) {
    value = left.mass - right.mass;
  } else if (right.z <= 0) {
    value = right.mass - left.mass;
  } else {
    value = 1 - left.mass - right.mass;
    error += 2 * kU;
  }
  value = std::max(value, 0.0);
  return {value, (error + kU * value) * (1 + 8 * kU)};
}

}  // namespace

Tail tail_at(double z) {
  if (std::isinf(z)) return {z, 0, 0};
  const double mass = 0.5 * numerics::erfc(std::abs(z));
  // 1 ulp of erfc, and a relative error of 4u in z that erfc magnifies by at most 2 z^2 + 1; the
  // last term is for subnormal results.
  return {z, mass, mass * kU * (8 * z * z + 8) + 0x1p-1070};
}

SubsampledGaussian::SubsampledGaussian(double q, double sigma, Direction direction)
    : q_(q), sigma_(sigma), scale_(1 / (sigma * kSqrt2)), direction_(direction) {}

Edge SubsampledGaussian::edge_at(double x) const {
  return {x, 0, 1, tail_at(x * scale_), tail_at((x - 1) * scale_)};
}

Edge SubsampledGaussian::edge_at_loss(double loss) const {
  const double growth = numerics::expm1(loss);
  const double y = growth / q_;
  const double shrink = numerics::exp(-loss);
  double v, relative;
  if (q_ < 0.5 || y > -0.5) {
    v = y > -1 ? numerics::log1p(y) : -kInfinity;
    relative = 3 * std::abs(growth) * shrink;
  } else {
    const double rest = numerics::exp(loss) - (1 - q_);
    v = rest > 0 ? numerics::log(rest / q_) : -kInfinity;
    relative = 6;
  }
  Edge edge = edge_at(std::isinf(v) ? v : v * (sigma_ * sigma_) + 0.5);
  edge.sharpness = std::isinf(v) ? 0 : std::min(1.0, q_ * numerics::exp(v) * shrink * (1 + 1e-9));
  edge.loss_error = 1.1 * kU * relative;
  if (edge.sharpness > 0) {
    edge.loss_error += 1.1 * kU * edge.sharpness *
                       (6 * std::abs(v) + 3 * (std::abs(edge.x) + 1) / (sigma_ * sigma_));
  }
  return edge;
}

Cell SubsampledGaussian::cell(const Edge& left, const Edge& right) const {
  return {between(left.without, right.without), between(left.with, right.with)};
}

Mass SubsampledGaussian::a_mass(const Cell& cell) const {
  if (direction_ == Direction::kAdd) return cell.without;
  const double value = (1 - q_) * cell.without.value + q_ * cell.with.value;
  return {value, (1 - q_) * cell.without.error + q_ * cell.with.error + 4 * kU * value};
}

Slope SubsampledGaussian::slope_at(double loss) const {
  const double growth = numerics::expm1(loss);
  if (q_ < 0.5 || growth > -0.5) {
    return {q_ + growth, kU * (3 * std::abs(growth) + q_)};
  }
  // 1 - q is exact here.
  const double power = numerics::exp(loss);
  return {power - (1 - q_), kU * (3 * power + 1 - q_)};
}

Mass SubsampledGaussian::excess(const Cell& cell, const Slope& slope) const {
  const double with = q_ * cell.with.value;
  const double without = slope.value * cell.without.value;
  const double error = q_ * cell.with.error + std::abs(slope.value) * cell.without.error +
                       kU * 4 * (with + std::abs(without)) + slope.error * cell.without.value;
  return {with - without, error * (1 + 16 * kU)};
}

double loss_at(double x, double q, double sigma) {
  const double v = (x - 0.5) / (sigma * sigma);
  if (q == 1) return v;
  if (v > 36) return v + numerics::log(q);
  return numerics::log1p(q * numerics::expm1(v));
}

Interval outcome_range(double q, double sigma, Direction direction, double tail) {
  const double z = -numerics::normal_quantile(std::min(tail / 2, 0.25));
  double right = sigma * z;
  if (direction == Direction::kRemove) {
    const double z1 = -numerics::normal_quantile(std::min(tail / (2 * q), 0.5));
    right = std::max(right, 1 + sigma * z1);
  }
  return {-sigma * z, right};
}

}  // namespace discreet::accounting
