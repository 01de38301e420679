#include "discreet/accounting/transform/subsampled_gaussian_impl.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "discreet/numerics/elementary.h"

namespace discreet::accounting {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSqrt2 = 1.4142135623730951;

// missing: what the two tails and the mass between them may lack of one.
Mass between(const Tail& left, const Tail& right, double missing) {
  double value, error = left.error + right.error;
  if (left.z >= 0) {
    value = left.mass - right.mass;
  } else if (right.z <= 0) {
    value = right.mass - left.mass;
  } else {
    value = 1 - left.mass - right.mass;
    error += 2 * kU + missing;
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

Participation participation(double rate, std::uint64_t group, double cutoff) {
  const double k = static_cast<double>(group);
  if (group == 1) return {rate, 1 - rate, 0, {{1, 1, 0}}, 0};
  if (rate == 1) return {1, 0, 0, {{k, 1, 0}}, 0};
  // Masses relative to the mode's, outwards by their ratios: no factorial, no underflow of w_0
  // alone. Ratios fall from the mode on, so what is not reached is below a geometric series.
  const double odds = rate / (1 - rate);
  const double mode = std::min(std::floor((k + 1) * rate), k);
  constexpr double kLeast = 1e-300;
  std::vector<Participation::Part> parts;
  double total = 0, rest = 0;
  for (double j = mode, mass = 1; j >= 0; --j) {
    parts.push_back({j, mass, 0});
    total += mass;
    mass *= j / ((k - j + 1) * odds);
    if (mass < kLeast) {
      rest += mass * (j + 1);
      break;
    }
  }
  std::reverse(parts.begin(), parts.end());
  for (double j = mode, mass = 1; j < k;) {
    mass *= (k - j) * odds / (j + 1);
    ++j;
    if (mass < kLeast) {
      rest += mass * (k - j + 1);
      break;
    }
    parts.push_back({j, mass, 0});
    total += mass;
  }
  Participation out;
  const double far = std::max(mode - parts.front().members, parts.back().members - mode);
  const double terms = static_cast<double>(parts.size());
  out.error = kU * (8 * far + 2 * terms + 16);
  out.none = parts.front().members == 0 ? parts.front().share / total : 0;
  out.dropped = rest / total;
  double some = 0;
  for (const auto& part : parts) {
    const double mass = part.share / total;
    if (part.members == 0) continue;
    some += mass;
    if (mass >= cutoff || part.members == std::max(mode, 1.0)) {
      out.parts.push_back({part.members, mass, 0});
    } else {
      out.dropped += mass;
    }
  }
  if (out.none < cutoff) {
    out.dropped += out.none;
    out.none = 0;
  }
  out.some = some;
  for (auto& part : out.parts) {
    part.share /= some;
    part.log_share = numerics::log(part.share);
  }
  out.dropped *= 1 + 1e-9;
  return out;
}

double negligible_part(double rate, std::uint64_t group, double tail) {
  const double log_none = rate < 1 ? static_cast<double>(group) * numerics::log1p(-rate) : 0;
  return std::max(1e-20 * tail * numerics::exp(log_none), 1e-300);
}

SubsampledGaussian::SubsampledGaussian(double rate, double sigma, Direction direction,
                                       std::uint64_t group, double cutoff)
    : takes_part_(participation(rate, group, cutoff)),
      sigma_(sigma),
      scale_(1 / (sigma * kSqrt2)),
      direction_(direction) {
  for (const auto& part : takes_part_.parts) centre_ += part.share * part.members;
}

SubsampledGaussian::LogRatio SubsampledGaussian::log_ratio(double x) const {
  const double precision = sigma_ * sigma_;
  double top = -kInfinity, top_size = 0;
  for (const auto& [members, share, log_share] : takes_part_.parts) {
    const double power = members * (x - 0.5 * members) / precision;
    if (log_share + power > top) {
      top = log_share + power;
      top_size = std::abs(log_share) + std::abs(power);
    }
  }
  double sum = 0, slope = 0, size = 0;
  for (const auto& [members, share, log_share] : takes_part_.parts) {
    const double power = members * (x - 0.5 * members) / precision;
    const double weight = numerics::exp(log_share + power - top);
    sum += weight;
    slope += weight * members;
    size += weight * (std::abs(log_share) + std::abs(power));
  }
  const double value = top + numerics::log(sum);
  const double terms = static_cast<double>(takes_part_.parts.size());
  return {value, slope / (sum * precision),
          kU * (8 * (size / sum + top_size) + 4 * std::abs(value) + 2 * terms + 16)};
}

Tail SubsampledGaussian::with_at(double x) const {
  const auto& parts = takes_part_.parts;
  if (parts.size() == 1) return tail_at((x - parts[0].members) * scale_);
  if (std::isinf(x)) return {x, 0, 0};
  const bool above = x >= centre_;
  double mass = 0, error = 0;
  for (const auto& [members, share, log_share] : parts) {
    const double z = (above ? x - members : members - x) * scale_;
    const double tail = 0.5 * numerics::erfc(z);
    mass += share * tail;
    // As in tail_at; below zero erfc does not magnify.
    error += share * tail * (z > 0 ? 8 * z * z + 8 : 8);
  }
  const double terms = static_cast<double>(parts.size());
  return {above ? 1.0 : -1.0, mass,
          kU * (error + mass * (2 * terms + 4)) + takes_part_.error * mass + 0x1p-1060};
}

Edge SubsampledGaussian::edge_at(double x) const {
  return {x, 0, 1, tail_at(x * scale_), with_at(x)};
}

Edge SubsampledGaussian::edge_at_loss(double loss) const {
  const auto& [some, none, weight_error, parts, dropped] = takes_part_;
  const double growth = numerics::expm1(loss);
  const double y = growth / some;
  const double shrink = numerics::exp(-loss);
  double v, relative;
  if (some < 0.5 || y > -0.5) {
    v = y > -1 ? numerics::log1p(y) : -kInfinity;
    relative = 3 * std::abs(growth) * shrink;
  } else {
    const double rest = numerics::exp(loss) - none;
    v = rest > 0 ? numerics::log(rest / some) : -kInfinity;
    relative = 6;
  }
  double x = v;
  double inversion = 0;  // |log_ratio(x) - v|
  if (parts.size() == 1) {
    const double members = parts[0].members;
    if (!std::isinf(v)) x = v * (sigma_ * sigma_) / members + 0.5 * members;
    inversion = kU * (6 * std::abs(v) + 3 * members * (std::abs(x) + members) / (sigma_ * sigma_));
  } else if (!std::isinf(v)) {
    // log_ratio is convex and at least each of its parts: Newton descends to the root from above.
    x = kInfinity;
    for (const auto& [members, share, log_share] : parts)
      x = std::min(x, (v - log_share) * (sigma_ * sigma_) / members + 0.5 * members);
    for (int i = 0;; ++i) {
      const LogRatio at = log_ratio(x);
      inversion = std::abs(at.value - v) + at.error + 2 * kU * std::abs(v);
      if (i == 60 || std::abs(at.value - v) <= at.error) break;
      x -= (at.value - v) / at.slope;
    }
  }
  Edge edge = edge_at(x);
  edge.sharpness = std::isinf(v) ? 0 : std::min(1.0, some * numerics::exp(v) * shrink * (1 + 1e-9));
  edge.loss_error = 1.1 * kU * relative + weight_error * (relative + 2);
  if (edge.sharpness > 0) edge.loss_error += 1.1 * edge.sharpness * inversion;
  return edge;
}

Cell SubsampledGaussian::cell(const Edge& left, const Edge& right) const {
  const double missing = takes_part_.dropped > 0 ? takes_part_.dropped / takes_part_.some : 0;
  return {between(left.without, right.without, 0),
          between(left.with, right.with, missing + takes_part_.error)};
}

Mass SubsampledGaussian::a_mass(const Cell& cell) const {
  if (direction_ == Direction::kAdd) return cell.without;
  const auto& [some, none, weight_error, parts, dropped] = takes_part_;
  const double value = none * cell.without.value + some * cell.with.value;
  return {value,
          none * cell.without.error + some * cell.with.error + (4 * kU + 2 * weight_error) * value};
}

Slope SubsampledGaussian::slope_at(double loss) const {
  const auto& [some, none, weight_error, parts, dropped] = takes_part_;
  const double growth = numerics::expm1(loss);
  if (some < 0.5 || growth > -0.5) {
    return {some + growth, kU * (3 * std::abs(growth) + some) + weight_error * some};
  }
  // For one record 1 - q is exact here.
  const double power = numerics::exp(loss);
  return {power - none, kU * (3 * power + none) + weight_error * none};
}

Mass SubsampledGaussian::excess(const Cell& cell, const Slope& slope) const {
  const auto& [some, none, weight_error, parts, dropped] = takes_part_;
  const double with = some * cell.with.value;
  const double without = slope.value * cell.without.value;
  const double error = some * cell.with.error + std::abs(slope.value) * cell.without.error +
                       kU * 4 * (with + std::abs(without)) + slope.error * cell.without.value +
                       weight_error * with + dropped;
  return {with - without, error * (1 + 16 * kU)};
}

double SubsampledGaussian::loss_at(double x) const {
  const auto& [some, none, weight_error, parts, dropped] = takes_part_;
  const double members = parts[0].members;
  const double v =
      parts.size() == 1 ? members * (x - 0.5 * members) / (sigma_ * sigma_) : log_ratio(x).value;
  if (none == 0) return v;
  if (v > 36) return v + numerics::log(some);
  return parts.size() == 1 || some < 0.5 || v > 0 ? numerics::log1p(some * numerics::expm1(v))
                                                  : numerics::log(none + some * numerics::exp(v));
}

double SubsampledGaussian::least_loss() const {
  const auto& [some, none, weight_error, parts, dropped] = takes_part_;
  if (none == 0) return -kInfinity;
  return parts.size() == 1 || some < 0.5 ? numerics::log1p(-some) : numerics::log(none);
}

Interval SubsampledGaussian::outcome_range(double tail) const {
  const auto& [some, none, weight_error, parts, dropped] = takes_part_;
  const double z = -numerics::normal_quantile(std::min(tail / 2, 0.25));
  double right = sigma_ * z;
  if (direction_ == Direction::kRemove) {
    const double z1 = -numerics::normal_quantile(std::min(tail / (2 * some), 0.5));
    if (parts.size() == 1) {
      right = std::max(right, parts[0].members + sigma_ * z1);
    } else {
      double low = parts[0].members + sigma_ * std::min(z1, 0.0);
      double high = std::max(right, parts.back().members + sigma_ * z1);
      for (int i = 0; i < 60 && high - low > 1e-3 * sigma_; ++i) {
        const double middle = 0.5 * (low + high);
        const Tail at = with_at(middle);
        (at.z > 0 && at.mass <= tail / (2 * some) ? high : low) = middle;
      }
      right = std::max(right, high);
    }
  }
  return {-sigma_ * z, right};
}

}  // namespace discreet::accounting
