#pragma once

#include <cstdint>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// Fixed-size sampling without replacement: each step draws b of n records uniformly and
// independently of other steps, clips each gradient to C and releases their sum plus Gaussian noise
// of standard deviation sigma C. Replacing a record in a batch changes the sum by up to 2C under
// either adjacency, so in units of the sensitivity the noise is sigma / 2 in both cases.
// Proof: fixed_size.md

// Add/remove adjacency. The tight dominating pair is that of Poisson sampling at rate q = b / n and
// noise multiplier sigma / 2; compose it with any accountant for Poisson-subsampled Gaussians.
// rate:  b / n in (0, 1), where n is the declared size of the data set. The neighbour with one
//        record more has a smaller rate and is covered.
// sigma: > 0. steps: >= 1.
// Throws kInvalidDpConfig if an argument is outside its range.
GaussianSteps fixed_size_add_remove(double rate, double sigma, std::uint64_t steps);

struct FixedSizeSteps {
  double rate;          // b / n in (0, 1]
  double sigma;         // noise standard deviation / clip norm, in [0.1, 1000]
  std::uint64_t steps;  // in [1, 2^32]
};

// Replace-one adjacency: the epsilon at which delta(epsilon) = delta. The exact worst case is
// unknown. The lower end is the epsilon of an attained pair, the upper end that of a dominating
// pair. relative_width in [1e-6, 1] limits what discretisation adds to this gap, relative to
// max(epsilon, 0.1). delta: in [1e-100, 1). Throws kInvalidDpConfig if an argument is outside its
// range.
Interval fixed_size_replace_one_epsilon(FixedSizeSteps steps, double delta, double relative_width);

}  // namespace discreet::accounting
