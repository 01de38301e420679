#include "discreet/random/exact.h"

#include <bit>

namespace discreet::random {

std::uint64_t uniform_below(WordReader& words, std::uint64_t bound) {
  if (bound == 1) return 0;
  const int shift = std::countl_zero(bound - 1);
  for (;;) {
    const std::uint64_t candidate = words.next() >> shift;
    if (candidate < bound) return candidate;
  }
}

Uint128 uniform_below(WordReader& words, Uint128 bound) {
  const auto top = static_cast<std::uint64_t>((bound - 1) >> 64);
  if (top == 0 && (bound >> 64) == 0) {
    return uniform_below(words, static_cast<std::uint64_t>(bound));
  }
  const int shift = top == 0 ? 64 : std::countl_zero(top);
  for (;;) {
    const Uint128 candidate = ((Uint128{words.next()} << 64) | words.next()) >> shift;
    if (candidate < bound) return candidate;
  }
}

bool bernoulli(WordReader& words, Uint128 numerator, Uint128 denominator) {
  return uniform_below(words, denominator) < numerator;
}

bool bernoulli_exp_minus(WordReader& words, Uint128 numerator, Uint128 denominator) {
  // exp(−(m + f)) is a product: m coins of exp(−1), stopped at the first failure, and one of
  // exp(−f). For f ≤ 1 the first k with a failed Bernoulli(f/k) is odd with probability exp(−f).
  const auto below_one = [&](Uint128 fraction, Uint128 unit) {
    Uint128 k = 1;
    while (bernoulli(words, fraction, unit * k)) ++k;
    return k % 2 == 1;
  };
  for (Uint128 whole = numerator / denominator; whole > 0; --whole) {
    if (!below_one(1, 1)) return false;
  }
  return below_one(numerator % denominator, denominator);
}

}  // namespace discreet::random
