#pragma once

#include <cstdint>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// Truncated Poisson sampling: each step selects every record independently with probability `rate`;
// if more than `capacity` records are selected, a uniform subset of `capacity` of them is kept. The
// sum of clipped gradients plus Gaussian noise of sigma times the clip norm is released, divided by
// a public constant.
//
// Adjacency: add/remove. The number of records must be public, because the probability of
// truncation, and with it the bound, depends on it. The bound holds for data sets of `records`
// records and their neighbours with one record more or less. Zero-out is not covered: a zeroed
// record still occupies a place in the batch.
//
// With probability tau, the other records alone fill the batch. Then including a record displaces
// another, and the sum changes by up to twice the clip norm. The dominating pair is the mixture of
// Poisson (rate, sigma) with weight 1 - tau and Poisson (rate', sigma / 2) with weight tau.
//
// Proof: truncated_poisson.md
struct TruncatedPoissonSteps {
  double rate;             // q in (0, 1)
  std::uint64_t capacity;  // B in [1, 2^40]
  std::uint64_t records;   // N, public, in [1, 2^40]; records * rate <= 1e10
  double sigma;            // noise standard deviation / clip norm, in [0.1, 1000]
  std::uint64_t steps;     // in [1, 2^32]
};

// The effect of truncation on one record among n: tau = P[Bin(n-1, q) >= B], and the probability of
// being in the batch in that case, rate' = B P[Bin(n, q) > B] / (n tau).
struct Truncation {
  Interval tau;
  double rate_upper;       // upper bound of rate', at most q
  double inclusion_lower;  // (1 - tau) q + tau rate', rounded down
};
Truncation truncation(double rate, std::uint64_t capacity, std::uint64_t n);

// epsilon at delta in [1e-100, 1) in one direction. The upper end is that of the dominating pair;
// the lower end is attained if the other gradients vanish. The true value between them is unknown.
// relative_width in [1e-6, 1] limits what discretisation adds to either end, relative to
// max(epsilon, 0.1). Throws kInvalidDpConfig if an argument is outside its range.
Interval truncated_poisson_epsilon(TruncatedPoissonSteps steps, double delta, Direction direction,
                                   double relative_width);

}  // namespace discreet::accounting
