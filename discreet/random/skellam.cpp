#include "discreet/random/skellam.h"

#include <fmt/format.h>

#include <algorithm>

#include "discreet/base/error.h"
#include "discreet/random/draw_each_impl.h"

namespace discreet::random {
namespace {

constexpr std::uint64_t kNumeratorLimit = std::uint64_t{1} << 24;
constexpr Uint128 kModeWeight = Uint128{1} << 100;

void require_rate(const char* op, const char* name, Rational rate) {
  if (rate.numerator == 0 || rate.denominator == 0 || rate.numerator > kNumeratorLimit ||
      rate.denominator > kNumeratorLimit) {
    throw Error(ErrorCode::kInvalidDpConfig, op,
                fmt::format("{} {}/{} is out of range; both parts must be from 1 to 2^24", name,
                            rate.numerator, rate.denominator));
  }
}

}  // namespace

PoissonTable::PoissonTable(Rational rate) {
  require_rate("PoissonTable", "rate", rate);
  const auto [a, b] = rate;
  const std::uint64_t mode = a / b;

  std::vector<Uint128> below;  // weights of mode − 1, mode − 2, …
  Uint128 weight = kModeWeight;
  for (std::uint64_t k = mode; k > 0; --k) {
    weight = weight * (b * k) / a;
    if (weight == 0) break;
    below.push_back(weight);
  }
  first_ = mode - below.size();
  Uint128 sum = 0;
  for (std::size_t i = below.size(); i-- > 0;) cumulative_.push_back(sum += below[i]);
  weight = kModeWeight;
  for (std::uint64_t k = mode; weight > 0; ++k) {
    cumulative_.push_back(sum += weight);
    weight = weight * a / (b * (k + 1));
  }
}

std::uint64_t PoissonTable::sample(WordReader& words) const {
  const Uint128 u = uniform_below(words, cumulative_.back());
  const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), u);
  return first_ + static_cast<std::uint64_t>(found - cumulative_.begin());
}

void skellam(const Generator& generator, const Position& position, Rational variance,
             std::span<std::int64_t> out, int threads) {
  require_rate("skellam", "variance", variance);
  const Rational half = variance.numerator % 2 == 0
                            ? Rational{variance.numerator / 2, variance.denominator}
                            : Rational{variance.numerator, 2 * variance.denominator};
  require_rate("skellam", "half the variance", half);
  const PoissonTable poisson(half);
  draw_each(generator, position, out, threads, [&](WordReader& words) {
    const auto plus = static_cast<std::int64_t>(poisson.sample(words));
    return plus - static_cast<std::int64_t>(poisson.sample(words));
  });
}

}  // namespace discreet::random
