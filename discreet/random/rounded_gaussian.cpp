#include <utility>

#include "discreet/random/rounded_gaussian_impl.h"

namespace discreet::random {
namespace {

// A coin of probability (2k + x)/(2k + 2).
bool survives(WordReader& words, std::uint64_t k, LazyUniform& x) {
  const std::uint64_t f = uniform_below(words, 2 * k + 2);
  if (f != 2 * k) return f < 2 * k;
  LazyUniform r;
  return r.less_than(x, words);
}

// True with probability exp(−x(2k + x)/(2k + 2)), Karney's algorithm B: a decreasing run of
// uniforms from x reaches length j with probability x^j/j!, each member passes a coin, and the
// chance of an even length is the alternating series of the exponential.
bool accept(WordReader& words, std::uint64_t k, LazyUniform& x) {
  LazyUniform smallest;
  LazyUniform* bound = &x;
  for (bool even = true;; even = !even) {
    LazyUniform z;
    if (!z.less_than(*bound, words) || !survives(words, k, x)) return even;
    smallest = std::move(z);
    bound = &smallest;
  }
}

struct HalfNormal {  // whole + fraction
  std::uint64_t whole;
  LazyUniform fraction;
};

HalfNormal sample_half_normal(WordReader& words) {
  for (;;) {
    std::uint64_t k = 0;
    while (bernoulli_exp_minus(words, 1, 2)) ++k;
    if (k > 1 && !bernoulli_exp_minus(words, Uint128{k} * (k - 1), 2)) continue;
    LazyUniform x;
    std::uint64_t accepted = 0;
    while (accepted <= k && accept(words, k, x)) ++accepted;
    if (accepted > k) return {k, std::move(x)};
  }
}

}  // namespace

std::int64_t sample_rounded_gaussian(WordReader& words, std::uint64_t n, std::uint64_t m) {
  HalfNormal z = sample_half_normal(words);
  const bool negative = words.next() >> 63;

  // Wanted: floor(n(k + x)/m + 1/2) = floor((step·x + value)/unit) with step = 2n, unit = 2m.
  // `gap` is how far step·x must come to pass the next integer. Each digit of x magnifies what is
  // left of it by 2^32; it is settled once even x = 1 would not reach.
  const Uint128 step = Uint128{2} * n;
  Uint128 unit = Uint128{2} * m;
  const Uint128 value = step * z.whole + m;
  Uint128 quotient = value / unit;
  Uint128 gap = unit - value % unit;
  for (std::size_t i = 0; step > gap; ++i) {
    const Uint128 passed = step * z.fraction.digit(i, words);
    gap <<= 32;
    if (unit < (Uint128{1} << 90)) unit <<= 32;  // beyond, at most one integer is passed anyway
    if (passed >= gap) {
      const Uint128 cells = (passed - gap) / unit + 1;
      quotient += cells;
      gap += cells * unit;
    }
    gap -= passed;
  }
  const auto magnitude = static_cast<std::int64_t>(quotient);
  return negative ? -magnitude : magnitude;
}

}  // namespace discreet::random
