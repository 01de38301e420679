#include "discreet/unlearning/service/attack.h"

#include <algorithm>
#include <cmath>

#include "discreet/numerics/elementary.h"
#include "discreet/unlearning/require_impl.h"

namespace discreet::unlearning {
namespace {

constexpr const char* kOp = "unlearning::attack";

// P(X >= k) for X binomial(n, p), 0 < p < 1, 1 <= k <= n. Terms fall off geometrically away from
// the mode, so the sum runs from k upwards until they no longer matter; where k is below the mode,
// the other tail is summed instead.
double upper_tail(std::uint64_t n, std::uint64_t k, double p) {
  const bool flip = static_cast<double>(k) < static_cast<double>(n) * p;
  // X >= k is not X <= k - 1, that is n - X >= n - k + 1.
  const std::uint64_t from = flip ? n - k + 1 : k;
  const double q = flip ? 1 - p : p;
  const auto trials = static_cast<double>(n);
  double log_term = 0;  // log of C(n, from) q^from (1-q)^(n-from)
  const std::uint64_t fewer = std::min(from, n - from);
  for (std::uint64_t i = 1; i <= fewer; ++i) {
    log_term += numerics::log((trials - static_cast<double>(fewer) + static_cast<double>(i)) /
                              static_cast<double>(i));
  }
  const auto at = static_cast<double>(from);
  log_term += at * numerics::log(q) + (trials - at) * numerics::log1p(-q);
  double term = 1, sum = 1;
  for (std::uint64_t i = from; i < n && term > 1e-18 * sum; ++i) {
    const auto j = static_cast<double>(i);
    term *= (trials - j) / (j + 1) * (q / (1 - q));
    sum += term;
  }
  const double tail = numerics::exp(log_term) * sum;
  return flip ? 1 - tail : tail;
}

// The p at which P(X >= k) = alpha, approached from below: the least p that the data do not refute.
double lower_end(std::uint64_t k, std::uint64_t n, double alpha) {
  if (k == 0) return 0;
  double low = 0, high = 1;
  for (int i = 0; i < 60; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle <= 0 || middle >= 1) break;
    (upper_tail(n, k, middle) < alpha ? low : high) = middle;
  }
  return std::max(0.0, low * (1 - 1e-9));  // outward beyond the accuracy of the tail
}

}  // namespace

accounting::Interval clopper_pearson(std::uint64_t k, std::uint64_t n, double alpha) {
  if (n < 1 || n > 100'000'000 || k > n) {
    invalid_input(kOp,
                  "found {} successes in {} trials; expected at most as many successes as trials, "
                  "and 1 to 10^8 trials",
                  k, n);
  }
  if (!(alpha > 0 && alpha < 0.5)) refuse(kOp, "alpha", alpha, "a number in (0, 1/2)");
  return {lower_end(k, n, alpha), 1 - lower_end(n - k, n, alpha)};
}

double epsilon_lower_bound(const AttackCounts& c, double delta, double alpha) {
  if (!(delta >= 0 && delta < 1)) refuse(kOp, "delta", delta, "a number in [0, 1)");
  require_probability(kOp, "alpha", alpha);
  const auto deleted = clopper_pearson(c.hits_deleted, c.runs, alpha / 4);
  const auto never = clopper_pearson(c.hits_never, c.runs, alpha / 4);
  const auto bound = [delta](double numerator, double denominator) {
    return numerator > delta ? numerics::log((numerator - delta) / denominator) : 0.0;
  };
  return std::max(
      {0.0, bound(deleted.lower, never.upper), bound(1 - never.upper, 1 - deleted.lower)});
}

}  // namespace discreet::unlearning
