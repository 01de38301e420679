#include "discreet/accounting/sampling/shuffle_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {

using numerics::exp;
using numerics::expm1;
using numerics::log;
using numerics::log1p;

namespace {

constexpr double kUnit = 0x1p-53;
constexpr double kNegligible = 1e-30;
constexpr double kAlmostOne = 1 - 1e-12;
constexpr std::uint64_t kMostRecords = std::uint64_t{1} << 34;  // time and memory grow as sqrt(n)

void require(bool good, const char* name, double value, const char* range) {
  if (!good) {
    invalid_config("shuffle_model", "{} is {}; it must be {}", name, value, range);
  }
}

void check(const ShuffledRecords& r) {
  require(r.count >= 1 && r.count <= kMostRecords, "the number of records",
          static_cast<double>(r.count), "from 1 to 2^34");
  require(r.epsilon0 > 0 && r.epsilon0 < 300, "epsilon0", r.epsilon0, "in (0, 300)");
  require(r.delta0 >= 0 && r.delta0 < 1, "delta0", r.delta0, "in [0, 1)");
}

void check_delta(double delta) { require(delta > 0 && delta < 1, "delta", delta, "in (0, 1)"); }

// Bin(m, p) with odds p/(1-p) around its mode, up to a common factor; both cut ends are bounded.
struct Window {
  double first;                 // C of weights[0]
  std::vector<double> weights;  // 1 at the mode
  double cut;                   // bound on the weight left out, on both sides together
  double sum;
};

Window binomial_window(double m, double odds) {
  const double mode = std::min(m, std::floor((m + 1) * (odds / (1 + odds))));
  std::vector<double> below;
  double cut = 0;
  double w = 1;
  for (double c = mode; c > 0; c -= 1) {
    const double ratio = c / ((m - c + 1) * odds);
    w *= ratio;
    if (w < kNegligible && ratio < kAlmostOne) {
      cut += 1.01 * w / (1 - ratio);  // the ratios fall further out
      break;
    }
    below.push_back(w);
  }
  Window window;
  window.first = mode - static_cast<double>(below.size());
  window.weights.assign(below.rbegin(), below.rend());
  window.weights.push_back(1);
  w = 1;
  for (double c = mode; c < m; c += 1) {
    const double ratio = (m - c) * odds / (c + 1);
    w *= ratio;
    if (w < kNegligible && ratio < kAlmostOne) {
      cut += 1.01 * w / (1 - ratio);
      break;
    }
    window.weights.push_back(w);
  }
  window.cut = cut;
  window.sum = 0;
  for (const double weight : window.weights) window.sum += weight;
  return window;
}

// Given C = c the divergence of the pair is
//   P - e^epsilon Q over {a >= k} = b(k-1) (p - e^epsilon (1-p)) - T(k) (e^epsilon - 1),
// b and T the mass and upper tail of Bin(c, 1/2), k the least a with P(a) >= e^epsilon Q(a).
// Walks c upwards: T(c+1, k) = T(c, k) + b(c, k-1)/2, and T(c, k+1) = T(c, k) - b(c, k).
class Walk {
 public:
  Walk(double epsilon, double epsilon0)
      : growth_(expm1(epsilon)),
        gain_((expm1(epsilon0) - growth_) / (expm1(epsilon0) + 2)),
        slope_(slope(growth_, expm1(epsilon0))) {}

  Interval at(double c) {
    const double k = std::max(1.0, std::ceil((c + 1) * slope_));
    if (c == c_ + 1 && k >= k_ && k <= c && c > kSmall && steps_ < kRestart &&
        (steps_ < 0.1 * c || tail_error_ < 1e-10 * tail_)) {
      advance(c, k);
    } else {
      start(c, k);
    }
    const double value = gain_ * atom_ - growth_ * tail_;
    // The last term: k off by one through rounding meets P = e^epsilon Q up to rounding.
    const double error = gain_ * atom_ * atom_error_ + growth_ * tail_error_ +
                         64 * kUnit * (gain_ * atom_ + growth_ * (tail_ + atom_)) + 1e-290;
    return {std::max(0.0, value - error), std::max(0.0, value) + error};
  }

 private:
  // (e^{epsilon+epsilon0} - 1)/((e^epsilon + 1)(e^epsilon0 - 1)) from the two expm1: sums of
  // positive numbers, within 14u. Lowered, so that k is never above the least a with P(a) >=
  // e^epsilon Q(a).
  static double slope(double g, double f) {
    return (g * f + g + f) / ((g + 2) * f) * (1 - 16 * kUnit);
  }
  static constexpr double kSmall = 64;
  static constexpr double kRestart = 16384;  // errors grow with the steps, a start costs sqrt(c)

  void start(double c, double k) {
    const double centre = std::ceil(0.5 * c);
    const bool even = std::fmod(c, 2) == 0;
    double mass = 1;   // relative to the centre's
    double total = 0;  // right half, the centre included
    double sweep = 0;
    atom_ = 0;
    tail_ = 0;
    for (double j = centre; j <= c; j += 1) {
      if (j == k - 1) atom_ = mass;
      if (j >= k) tail_ += mass;
      total += mass;
      mass *= (c - j) / (j + 1);
      sweep += 1;
      if (mass < 1e-300 || (j >= k && mass < 1e-22 * tail_)) break;
    }
    if (k - 1 < centre) atom_ = even ? centre / (c - centre + 1) : 1;  // at epsilon = 0 only
    const double all = even ? 2 * total - 1 : 2 * total;
    const double cut = 2 * sweep * mass / all;  // at the break ratios are below 1 - 1/sweep
    atom_ /= all;
    tail_ /= all;
    atom_error_ = 8 * kUnit * (sweep + 4);
    tail_error_ = tail_ * atom_error_ + cut;
    c_ = c;
    k_ = k;
    steps_ = 0;
  }

  void advance(double c, double k) {
    add_to_tail(0.5 * atom_);
    atom_ *= c / (2 * (c + 1 - k_));
    atom_error_ += 4 * kUnit;
    for (; k_ < k; k_ += 1) {
      atom_ *= (c - k_ + 1) / k_;
      atom_error_ += 4 * kUnit;
      add_to_tail(-atom_);
    }
    c_ = c;
    steps_ += 1;
  }

  void add_to_tail(double change) {
    tail_ = std::max(0.0, tail_ + change);
    tail_error_ += 1.01 * (std::abs(change) * atom_error_ + kUnit * tail_);
  }

  double growth_;
  double gain_;   // p - e^epsilon (1-p) = (e^epsilon0 - e^epsilon)/(1 + e^epsilon0)
  double slope_;  // k = ceil((c+1) slope)
  double c_ = -2;
  double k_ = 0;
  double atom_ = 0;        // b(k-1)
  double tail_ = 0;        // T(k)
  double atom_error_ = 0;  // relative
  double tail_error_ = 0;  // absolute
  double steps_ = 0;
};

Interval pair_delta(const Window& window, double epsilon, double epsilon0) {
  if (epsilon >= epsilon0) return {0, 0};
  Walk walk(epsilon, epsilon0);
  double lower = 0;
  double upper = 0;
  for (std::size_t i = 0; i < window.weights.size(); ++i) {
    const Interval given = walk.at(window.first + static_cast<double>(i));
    lower += window.weights[i] * given.lower;
    upper += window.weights[i] * given.upper;
  }
  const double slack = kUnit * 24 * static_cast<double>(window.weights.size() + 8);
  return {lower / (window.sum + window.cut) * (1 - slack),
          std::min(1.0, (upper + window.cut) / window.sum * (1 + slack))};
}

Window window_of(const ShuffledRecords& r) {
  return binomial_window(static_cast<double>(r.count - 1), 1 / expm1(r.epsilon0));
}

}  // namespace

double shuffle_delta_charge(const ShuffledRecords& r, double epsilon) {
  check(r);
  if (r.delta0 == 0) return 0;
  const double others = 2 * static_cast<double>(r.count - 1) * exp(-r.epsilon0);
  return (1 + exp(epsilon)) * (1 + others) * r.delta0 * (1 + 16 * kUnit);
}

Interval shuffle_pair_delta(const ShuffledRecords& r, double epsilon) {
  check(r);
  require(epsilon >= 0 && std::isfinite(epsilon), "epsilon", epsilon, "finite and at least 0");
  return pair_delta(window_of(r), epsilon, r.epsilon0);
}

namespace {

// An epsilon for delta from `pure(d)`, a bound without the charge that falls as d grows. The charge
// grows with epsilon, so charging it at a larger epsilon is safe.
template <class Pure>
double with_charge(const ShuffledRecords& r, double delta, const Pure& pure) {
  if (r.delta0 == 0) return pure(delta);
  const double charge = shuffle_delta_charge(r, pure(0.5 * delta));
  if (charge <= 0.5 * delta) return std::min(r.epsilon0, pure((delta - charge) * (1 - 2 * kUnit)));
  if (delta >= r.delta0) return r.epsilon0;
  invalid_config(
      "shuffle_model",
      "the charge for delta0 = {} exceeds delta = {}; use a larger delta or more local noise",
      r.delta0, delta);
}

}  // namespace

double shuffle_epsilon_closed_form(const ShuffledRecords& r, double delta) {
  check(r);
  check_delta(delta);
  const double n = static_cast<double>(r.count);
  const double growth = exp(r.epsilon0);
  return with_charge(r, delta, [&](double d) {
    const double budget = log(4 / d);
    if (!(r.epsilon0 <= log(n / (16 * budget)) * (1 - 8 * kUnit))) return r.epsilon0;
    const double spread = 8 * std::sqrt(growth * budget / n) + 8 * growth / n;
    const double share = -expm1(-r.epsilon0) / (1 + exp(-r.epsilon0) / (1 + spread));
    const double epsilon = log1p(share * spread);
    return std::min(r.epsilon0, epsilon * (1 + 32 * kUnit));
  });
}

Interval shuffle_epsilon(const ShuffledRecords& r, double delta) {
  check(r);
  check_delta(delta);
  const Window window = window_of(r);
  // Bisection on the predicate: what is returned has passed its own test.
  const auto bisect = [&](double high, auto&& is_enough) {
    double low = 0;
    while (high - low > 1e-9 * high) {
      const double middle = 0.5 * (low + high);
      (is_enough(pair_delta(window, middle, r.epsilon0)) ? high : low) = middle;
    }
    return Interval{low, high};
  };
  const double upper = with_charge(r, delta, [&](double d) {
    return bisect(r.epsilon0, [d](Interval found) { return found.upper <= d; }).upper;
  });
  return {bisect(upper, [delta](Interval found) { return !(found.lower >= delta); }).lower, upper};
}

}  // namespace discreet::accounting
