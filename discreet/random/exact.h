#pragma once

#include <cstdint>

#include "discreet/random/uint128.h"
#include "discreet/random/word_reader.h"

namespace discreet::random {

// Exact draws by integer arithmetic: no floating point, no rounding, no bias. The laws hold exactly
// when the words are uniform and independent.

// Uniform on {0 … bound − 1}, bound ≥ 1, by rejection from the smallest power of two ≥ bound.
std::uint64_t uniform_below(WordReader& words, std::uint64_t bound);
Uint128 uniform_below(WordReader& words, Uint128 bound);

// True with probability numerator / denominator. 0 ≤ numerator ≤ denominator, denominator ≥ 1.
bool bernoulli(WordReader& words, Uint128 numerator, Uint128 denominator);

// True with probability exp(−numerator / denominator), numerator ≥ 0, 1 ≤ denominator < 2^112.
// Canonne, Kamath, Steinke: "The discrete Gaussian for differential privacy" (2020), algorithm 1.
bool bernoulli_exp_minus(WordReader& words, Uint128 numerator, Uint128 denominator);

}  // namespace discreet::random
