#include "discreet/accounting/renyi/renyi_budget.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "discreet/accounting/transform/subsampled_gaussian_impl.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// log C(n, i) for i = 0..n, added up from the logarithms of the ratios of neighbours.
using LogChoose = std::vector<double>;

LogChoose log_choose(int n) {
  LogChoose table(static_cast<std::size_t>(n) + 1);
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    table[static_cast<std::size_t>(i)] = sum;
    sum += numerics::log(static_cast<double>(n - i) / (i + 1));
  }
  return table;
}

// One table per order: they are the same for every step.
const LogChoose& log_choose_of_order(std::size_t index) {
  static const auto tables = [] {
    std::array<LogChoose, RenyiBudget::kOrders.size()> all;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = log_choose(RenyiBudget::kOrders[i] + 1);
    return all;
  }();
  return tables[index];
}

// Upper bound of log E[e^{cL}] in the remove direction for integer c, which is no smaller than that
// of the add direction (Mironov, Talwar and Zhang 2019, theorem 5):
//   log sum_i C(n, i) (1-q)^{n-i} q^i e^{(i^2-i)/2sigma^2},  n = c + 1.
double gaussian_cumulant(double q, double sigma, std::size_t index) {
  const int n = RenyiBudget::kOrders[index] + 1;
  const double half = 1 / (2 * sigma * sigma);
  if (q == 1) return static_cast<double>(n) * (n - 1) * half * (1 + 8 * kU);
  const double log_q = numerics::log(q), log_rest = numerics::log1p(-q);
  const LogChoose& choose = log_choose_of_order(index);
  double terms[RenyiBudget::kOrders.back() + 2];
  double top = -kInfinity;
  for (int i = 0; i <= n; ++i) {
    terms[i] = choose[static_cast<std::size_t>(i)] + (n - i) * log_rest + i * log_q +
               static_cast<double>(i) * (i - 1) * half;
    top = std::max(top, terms[i]);
  }
  for (int i = 0; i <= n; ++i) terms[i] -= top;
  const std::span<double> used(terms, static_cast<std::size_t>(n) + 1);
  numerics::exp(used, used);
  double sum = 0;
  for (const double term : used) sum += term;
  // Each term is off by at most this much, in absolute value, and so is the logarithm of their sum.
  const double size = n * (std::abs(log_q) + std::abs(log_rest) + n * half + 6);
  return std::max(top + numerics::log(sum) + 32 * kU * (size + n), 0.0);
}

double explicit_cumulant(double epsilon, int c) {
  // (e^{(1+c) epsilon} + e^{-c epsilon}) / (1 + e^epsilon)
  const double value = c * epsilon + numerics::log1p(numerics::exp(-(2 * c + 1) * epsilon)) -
                       numerics::log1p(numerics::exp(-epsilon));
  return std::max(value + 16 * kU * (c * epsilon + 2), 0.0);
}

}  // namespace

RenyiBudget::Wide RenyiBudget::rounded_up(double value, int bits) {
  const double scaled = std::ldexp(value, bits);
  if (!(scaled < 0x1p126)) return ~Wide{0};
  return static_cast<Wide>(std::ceil(scaled)) + (scaled == std::ceil(scaled) ? 0 : 1);
}

void RenyiBudget::accumulate(Wide& sum, Wide term, std::uint64_t count) {
  constexpr Wide kMax = ~Wide{0};
  if (term != 0 && count > (kMax - sum) / term) {
    sum = kMax;
  } else {
    sum += term * count;
  }
}

const RenyiBudget::Terms& RenyiBudget::terms_of(const GaussianSteps& event) {
  if (event.rate != last_rate_ || event.sigma != last_sigma_) {
    for (std::size_t i = 0; i < kOrders.size(); ++i)
      last_terms_[i] = rounded_up(gaussian_cumulant(event.rate, event.sigma, i), 40);
    last_rate_ = event.rate;
    last_sigma_ = event.sigma;
  }
  return last_terms_;
}

void RenyiBudget::add(const Composition& steps) {
  for (const GaussianSteps& event : steps.gaussians) {
    const Terms& terms = terms_of(event);
    for (std::size_t i = 0; i < kOrders.size(); ++i) accumulate(sums_[i], terms[i], event.count);
  }
  for (std::size_t i = 0; i < kOrders.size(); ++i) {
    for (const ExplicitSteps& event : steps.explicits)
      accumulate(sums_[i], rounded_up(explicit_cumulant(event.epsilon, kOrders[i]), 40),
                 event.count);
  }
  for (const ExplicitSteps& event : steps.explicits)
    accumulate(failure_, rounded_up(-numerics::log1p(-event.delta) * (1 + 4 * kU), 100),
               event.count);
}

double RenyiBudget::value_of(Wide sum, int bits) {
  return sum == ~Wide{0} ? kInfinity : std::ldexp(static_cast<double>(sum), -bits) * (1 + 4 * kU);
}

double RenyiBudget::delta_upper(double epsilon) const {
  double best = 0;  // the logarithm; delta is at most 1
  for (std::size_t i = 0; i < kOrders.size(); ++i) {
    const double c = kOrders[i];
    const double log_kernel = c * numerics::log(c) - (1 + c) * numerics::log1p(c);
    const double sum = value_of(sums_[i], 40);
    best = std::min(best,
                    sum + log_kernel - c * epsilon + 16 * kU * (sum + (1 + c) * 8 + c * epsilon));
  }
  const double tiny = std::numeric_limits<double>::min();
  return std::min(1.0,
                  (std::max(numerics::exp(best), tiny) + value_of(failure_, 100)) * (1 + 16 * kU));
}

double RenyiBudget::epsilon_upper(double delta) const {
  const double left = (delta - value_of(failure_, 100)) * (1 - 4 * kU);
  if (!(left > 0)) return kInfinity;
  const double log_left = numerics::log(left);
  double best = kInfinity;
  for (std::size_t i = 0; i < kOrders.size(); ++i) {
    const double c = kOrders[i];
    const double log_kernel = c * numerics::log(c) - (1 + c) * numerics::log1p(c);
    const double sum = value_of(sums_[i], 40);
    const double epsilon =
        (sum + log_kernel - log_left) / c + 16 * kU * (sum + (1 + c) * 8 + std::abs(log_left)) / c;
    best = std::min(best, epsilon);
  }
  return std::max(best, 0.0);
}

}  // namespace discreet::accounting
