#include "discreet/random/skellam.h"

#include <algorithm>
#include <bit>

#include "discreet/base/error.h"
#include "discreet/random/draw_each_impl.h"

namespace discreet::random {
namespace {

constexpr std::uint64_t kPartLimit = std::uint64_t{1} << 24;
using Weight = std::array<std::uint64_t, 4>;
constexpr Weight kModeWeight = {1, 0, 0, 0};  // 2^192

// ⌊weight · numerator / denominator⌋, for numerator ≤ denominator < 2^63 and numerator < 2^63.
Weight scaled(const Weight& weight, std::uint64_t numerator, std::uint64_t denominator) {
  std::array<std::uint64_t, 5> product{};
  Uint128 carry = 0;
  for (int i = 3; i >= 0; --i) {
    carry += Uint128{weight[i]} * numerator;
    product[i + 1] = static_cast<std::uint64_t>(carry);
    carry >>= 64;
  }
  product[0] = static_cast<std::uint64_t>(carry);
  Weight quotient;
  Uint128 rest = product[0];
  for (int i = 0; i < 4; ++i) {
    rest = (rest << 64) | product[i + 1];
    quotient[i] = static_cast<std::uint64_t>(rest / denominator);
    rest %= denominator;
  }
  return quotient;
}

Weight sum_of(const Weight& a, const Weight& b) {
  Weight sum;
  Uint128 carry = 0;
  for (int i = 3; i >= 0; --i) {
    carry += Uint128{a[i]} + b[i];
    sum[i] = static_cast<std::uint64_t>(carry);
    carry >>= 64;
  }
  return sum;
}

double as_double(const Weight& w) {
  return ((static_cast<double>(w[0]) * 0x1p64 + static_cast<double>(w[1])) * 0x1p64 +
          static_cast<double>(w[2])) *
             0x1p64 +
         static_cast<double>(w[3]);
}

// Uniform below `bound`, by rejection from the smallest power of two that covers it. bound[0] ≥ 1.
Weight uniform_below(WordReader& words, const Weight& bound) {
  const int shift = std::countl_zero(bound[0]);
  for (;;) {
    Weight candidate = {words.next() >> shift, words.next(), words.next(), words.next()};
    if (candidate < bound) return candidate;
  }
}

void require_parts(const char* op, const char* name, Rational r, std::uint64_t denominator_limit) {
  if (r.numerator == 0 || r.denominator == 0 || r.numerator > kPartLimit ||
      r.denominator > denominator_limit) {
    invalid_config(op, "{} {}/{} is out of range; the parts must be from 1 to {} and {}", name,
                   r.numerator, r.denominator, kPartLimit, denominator_limit);
  }
}

}  // namespace

PoissonTable::PoissonTable(Rational rate) {
  require_parts("PoissonTable", "rate", rate, kPartLimit);
  const auto [a, b] = rate;
  const std::uint64_t mode = a / b;

  std::vector<Weight> below;  // weights of mode − 1, mode − 2, …
  Weight weight = kModeWeight;
  for (std::uint64_t k = mode; k > 0; --k) {
    weight = scaled(weight, b * k, a);
    if (weight == Weight{}) break;
    below.push_back(weight);
  }
  first_ = mode - below.size();
  Weight sum{};
  for (std::size_t i = below.size(); i-- > 0;) cumulative_.push_back(sum = sum_of(sum, below[i]));
  weight = kModeWeight;
  for (std::uint64_t k = mode; weight != Weight{}; ++k) {
    cumulative_.push_back(sum = sum_of(sum, weight));
    weight = scaled(weight, a, b * (k + 1));
  }
}

std::uint64_t PoissonTable::sample(WordReader& words) const {
  const Weight u = uniform_below(words, cumulative_.back());
  const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), u);
  return first_ + static_cast<std::uint64_t>(found - cumulative_.begin());
}

double PoissonTable::probability(std::size_t i) const noexcept {
  Weight weight = cumulative_[i];
  if (i > 0) {  // minus the one before, in two's complement
    Weight negated;
    for (int j = 0; j < 4; ++j) negated[j] = ~cumulative_[i - 1][j];
    weight = sum_of(sum_of(weight, negated), {0, 0, 0, 1});
  }
  return as_double(weight) / as_double(cumulative_.back());
}

void skellam(const Generator& generator, const Position& position, Rational variance,
             std::span<std::int64_t> out, int threads) {
  require_parts("skellam", "variance", variance, kPartLimit / 2);
  const Rational half = variance.numerator % 2 == 0
                            ? Rational{variance.numerator / 2, variance.denominator}
                            : Rational{variance.numerator, 2 * variance.denominator};
  const PoissonTable poisson(half);
  draw_each(generator, position, out, threads, [&](WordReader& words) {
    const auto plus = static_cast<std::int64_t>(poisson.sample(words));
    return plus - static_cast<std::int64_t>(poisson.sample(words));
  });
}

}  // namespace discreet::random
