#pragma once

#include <cstdint>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// Shuffled epochs: every epoch cuts a new uniform permutation of the records into `batches` batches
// of one public size. Each batch releases the sum of its clipped gradients plus Gaussian noise of
// sigma times the clip norm. Shuffling does not amplify as Poisson sampling does, and the exact
// epsilon is unknown. The interval is
//   upper  the bound if the permutation is public: E Gaussians, mu = sensitivity sqrt(E) / sigma
//   lower  the value attained by an attacker who looks for a large batch output in each epoch
// and its width is this gap, not an arithmetic error. sigma = .5, 10^4 batches, one epoch, delta =
// 1e-6: [10.99, 11.00], where balls-and-bins has 1.94.
//
// Adjacency: zero-out of one record, or replace-one at twice the sensitivity. Under add/remove the
// batches of the neighbour would be cut at other places; there is no bound and hence no function.
// Proof: shuffle.md
struct ShuffledEpochs {
  double sigma;           // noise standard deviation / clip norm, in [0.01, 1000]
  std::uint64_t batches;  // per epoch, in [1, 2^32]
  std::uint64_t epochs;   // in [1, 2^32]
};

// epsilon at delta in [1e-100, 1). Throws kInvalidDpConfig if an argument is outside its range.
Interval shuffle_zero_out_epsilon(ShuffledEpochs epochs, double delta);
Interval shuffle_replace_one_epsilon(ShuffledEpochs epochs, double delta);

}  // namespace discreet::accounting
