#include "discreet/random/discrete.h"

#include <cmath>

#include "discreet/base/error.h"
#include "discreet/random/draw_each_impl.h"
#include "discreet/random/exact.h"
#include "discreet/random/rounded_gaussian_impl.h"

namespace discreet::random {
namespace {

constexpr std::uint64_t kPartLimit = std::uint64_t{1} << 53;
constexpr std::uint64_t kRunLimit = 256;

void require_rational(const char* op, const char* name, Rational r) {
  if (r.numerator == 0 || r.denominator == 0 || r.numerator > kPartLimit ||
      r.denominator > kPartLimit) {
    invalid_config(op, "{} {}/{} is out of range; both parts must be from 1 to 2^53", name,
                   r.numerator, r.denominator);
  }
}

// How many coins of probability exp(−1) succeed in a row. The law of large runs is cut at 256,
// which a working generator reaches with probability exp(−256) < 2^-369; the bound keeps the
// products of discrete_gaussian below 2^128.
std::uint64_t run_of_exp_minus_one(WordReader& words) {
  std::uint64_t run = 0;
  while (bernoulli_exp_minus(words, 1, 1)) {
    if (++run == kRunLimit) {
      fail(ErrorCode::kRngConsumptionViolation, "discrete_laplace",
           "a coin of probability 1/e succeeded 256 times; the generator is broken");
    }
  }
  return run;
}

std::int64_t sample_laplace(WordReader& words, Rational scale) {
  const auto [t, s] = scale;
  for (;;) {
    const std::uint64_t u = uniform_below(words, t);
    if (!bernoulli_exp_minus(words, u, t)) continue;
    const std::uint64_t x = u + t * run_of_exp_minus_one(words);
    const auto y = static_cast<std::int64_t>(x / s);
    const bool negative = words.next() >> 63;
    if (negative && y == 0) continue;
    return negative ? -y : y;
  }
}

std::uint64_t floor_sqrt(std::uint64_t n) noexcept {
  std::uint64_t root = 0;
  for (std::uint64_t bit = std::uint64_t{1} << 31; bit > 0; bit >>= 1) {
    if ((root + bit) * (root + bit) <= n) root += bit;
  }
  return root;
}

std::int64_t sample_gaussian(WordReader& words, Rational variance, std::uint64_t t) {
  const auto [n, m] = variance;
  const Uint128 denominator = Uint128{2} * n * m * t * t;
  for (;;) {
    const std::int64_t y = sample_laplace(words, {t, 1});
    const Uint128 magnitude = static_cast<std::uint64_t>(y < 0 ? -y : y);
    const Uint128 scaled = magnitude * m * t;
    const Uint128 distance = scaled > n ? scaled - n : n - scaled;
    if (bernoulli_exp_minus(words, distance * distance, denominator)) return y;
  }
}

}  // namespace

Rational Rational::at_least(double x) {
  if (!std::isfinite(x)) {
    fail(ErrorCode::kNanInSigma, "Rational::at_least", "the value is {}; it must be finite", x);
  }
  if (!(x > 0 && x <= 0x1p53)) {
    invalid_config("Rational::at_least", "{} is out of range; it must be above 0 and at most 2^53",
                   x);
  }
  // Powers of two scale exactly, and ceil is exact.
  if (x >= 0x1p52) return {static_cast<std::uint64_t>(x), 1};
  std::uint64_t denominator = 1;
  double scaled = x;
  while (denominator < kPartLimit && scaled != std::floor(scaled) && scaled < 0x1p52) {
    scaled *= 2;
    denominator *= 2;
  }
  return {static_cast<std::uint64_t>(std::ceil(scaled)), denominator};
}

void discrete_laplace(const Generator& generator, const Position& position, Rational scale,
                      std::span<std::int64_t> out, int threads) {
  require_rational("discrete_laplace", "scale", scale);
  draw_each(generator, position, out, threads,
            [&](WordReader& words) { return sample_laplace(words, scale); });
}

void discrete_gaussian(const Generator& generator, const Position& position, Rational variance,
                       std::span<std::int64_t> out, int threads) {
  require_rational("discrete_gaussian", "variance", variance);
  const std::uint64_t t = floor_sqrt(variance.numerator / variance.denominator) + 1;
  draw_each(generator, position, out, threads,
            [&](WordReader& words) { return sample_gaussian(words, variance, t); });
}

void rounded_gaussian(const Generator& generator, const Position& position, Rational stddev,
                      std::span<std::int64_t> out, int threads) {
  require_rational("rounded_gaussian", "stddev", stddev);
  draw_each(generator, position, out, threads, [&](WordReader& words) {
    return sample_rounded_gaussian(words, stddev.numerator, stddev.denominator);
  });
}

}  // namespace discreet::random
