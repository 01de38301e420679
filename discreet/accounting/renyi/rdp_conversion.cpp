#include "discreet/accounting/renyi/rdp_conversion.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "discreet/accounting/renyi/rdp_impl.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {

using numerics::exp;
using numerics::expm1;
using numerics::log;
using numerics::log1p;

namespace {

constexpr auto kOrders = [] {
  std::array<double, 99 + 54 + 7> orders{};
  std::size_t n = 0;
  for (int i = 11; i <= 109; ++i) orders[n++] = i / 10.0;
  for (int i = 11; i <= 64; ++i) orders[n++] = i;
  for (const int i : {80, 96, 128, 192, 256, 512, 1024}) orders[n++] = i;
  return orders;
}();

constexpr double kLeastExcess = 0x1p-12;  // orders are searched in [1 + this, 1 + the next]
constexpr double kMostExcess = 0x1p14;
constexpr double kFirstExcess = 16;  // large orders cost more: approach them from below

// Visits orders near the sign change of an increasing function of c = a - 1. `visit(c)` evaluates
// order 1 + c, remembers its bound and returns the function; NaN and +inf count as positive. Values
// below 1e-5 of `scale` end the search.
template <class Visit>
void seek_sign_change(double start, double scale, const Visit& visit) {
  double low = 0;
  double high = 0;
  double at_low = 0;
  double at_high = 0;
  double c = std::clamp(start, kLeastExcess, kFirstExcess);
  for (;;) {
    const double value = visit(c);
    if (value < 0) {
      low = c;
      at_low = value;
      if (high > 0 || c >= kMostExcess) break;
      c = std::min(4 * c, kMostExcess);
    } else {
      high = c;
      at_high = value;
      if (low > 0 || c <= kLeastExcess) break;
      c = std::max(0.25 * c, kLeastExcess);
    }
  }
  if (low > 0 && high > 0) {
    double s_low = log(low);
    double s_high = log(high);
    if (!std::isfinite(at_high)) at_high = 1e300;
    // Ridders' method: two evaluations per iteration, and suitable for functions that grow
    // exponentially.
    for (int i = 0; i < 20 && s_high - s_low > 1e-6; ++i) {
      const double middle = 0.5 * (s_low + s_high);
      double at_middle = visit(exp(middle));
      if (!(at_middle < 1e300)) at_middle = 1e300;
      const double root = std::sqrt(1 - (at_low / at_middle) * (at_high / at_middle));
      const double s = middle - (middle - s_low) / root * (at_middle < 0 ? -1 : 1);
      if (at_middle < 0) {
        s_low = middle;
        at_low = at_middle;
      } else {
        s_high = middle;
        at_high = at_middle;
      }
      // The bound is flat at its minimum: 1e-6 in the order is 1e-12 in epsilon.
      if (!(s > s_low && s < s_high) || s - s_low < 1e-6 || s_high - s < 1e-6) continue;
      double value = visit(exp(s));
      if (!(value < 1e300)) value = 1e300;
      if (value < 0) {
        s_low = s;
        at_low = value;
      } else {
        s_high = s;
        at_high = value;
      }
      if (std::abs(value) < 1e-5 * std::abs(scale)) break;
    }
    c = exp(s_low);
  }
  // Curves made of chords have their minimum at an integer order.
  const double whole = std::floor(c + 1.5);
  if (whole >= 2) visit(whole - 1);
}

}  // namespace

std::span<const double> declared_orders() noexcept { return kOrders; }

double epsilon_at_order(double order, double log_moment, double delta) {
  const double c = order - 1;
  if (!std::isfinite(log_moment)) return kInfinity;
  const double rate = log_moment / c + (log_moment > 0 ? kUnderflow : 0);
  if (delta * delta * (1 - 4 * kUnit) >= -expm1(-rate)) return 0;
  const double budget = -log(delta);
  const double entropy = log1p(c);
  const double gain = log1p(1 / c);
  const double epsilon = (log_moment + budget - entropy) / c - gain;
  const double error = 8 * kUnit * ((log_moment + budget + entropy) / c + gain);
  return std::max(0.0, epsilon + error);
}

RenyiEpsilon epsilon_on_grid(const MomentSum& moments, double delta) {
  RenyiEpsilon best{kInfinity, kOrders[0]};
  for (const double order : kOrders) {
    const double epsilon = epsilon_at_order(order, moments(order).value.upper, delta);
    if (epsilon < best.epsilon) best = {epsilon, order};
  }
  return best;
}

RenyiEpsilon minimise_epsilon(const MomentSum& moments, double delta) {
  RenyiEpsilon best{kInfinity, 2};
  const double log_delta = log(delta);
  const auto visit = [&](double c) {
    const double order = 1 + c;
    c = order - 1;
    const LogMoment moment = moments(order);
    const double epsilon = epsilon_at_order(order, moment.value.upper, delta);
    if (epsilon < best.epsilon) best = {epsilon, order};
    return c * moment.slope - moment.value.upper + log1p(c) + log_delta;
  };
  visit(1);
  const double variance = moments(2).value.upper;
  seek_sign_change(std::sqrt(-2 * log_delta / variance), log_delta, visit);
  return best;
}

double minimise_delta(const MomentSum& moments, double epsilon) {
  double best = 0;  // the logarithm
  const auto visit = [&](double c) {
    const double order = 1 + c;
    c = order - 1;
    const LogMoment moment = moments(order);
    const double k = moment.value.upper;
    const double gain = log1p(1 / c);
    const double value = k - c * epsilon - log1p(c) - c * gain;
    const double error = 8 * kUnit * (k + c * epsilon + log1p(c) + c * gain);
    if (value + error < best) best = value + error;
    return moment.slope - epsilon - gain;
  };
  seek_sign_change(1, epsilon + 1, visit);
  double delta = std::min(1.0, exp(best) * (1 + 4 * kUnit) + kUnderflow);
  // Bretagnolle and Huber: delta(epsilon) <= delta(0) <= sqrt(1 - e^{-KL}), and KL <= r(2).
  const double total_variation = std::sqrt(-expm1(-moments(2).value.upper)) * (1 + 8 * kUnit);
  return std::min(delta, total_variation);
}

}  // namespace discreet::accounting
