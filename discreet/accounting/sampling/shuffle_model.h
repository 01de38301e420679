#pragma once

#include <cstdint>

#include "discreet/accounting/composition.h"
#include "discreet/accounting/event.h"

// Amplification by shuffling of locally noised records (Feldman, McMillan, Talwar 2021).
//
// n people each send R(x_i), the same (epsilon0, delta0)-LDP randomizer of their own record, and
// only the multiset of the n messages is seen. Replacing one person's record then costs less than
// epsilon0. This is about records that were noised *before* they were shuffled. It says nothing
// about shuffled mini-batches of clean records, which earn no amplification here. Adjacency of
// everything below: replace-one.
//
// With delta0 = 0 the two worlds are no easier to tell apart than the pair
//   C ~ Bin(n-1, e^-epsilon0), A ~ Bin(C, 1/2), D ~ Bernoulli(e^epsilon0/(1+e^epsilon0)):
//   (A + D, C - A + 1 - D)   against   (A + 1 - D, C - A + D).
// With delta0 > 0 the same bound holds at the price of
//   (1 + e^epsilon)(1 + 2 (n-1) e^-epsilon0) delta0   added to delta.
// Proof: shuffle_model.md
namespace discreet::accounting {

struct ShuffledRecords {
  std::uint64_t count;  // n in [1, 2^34]; fewer than there are is sound (where delta0 is 0)
  double epsilon0;      // in (0, 300): of the local randomizer
  double delta0 = 0;    // in [0, 1): of the local randomizer; a Gaussian has no delta0 = 0
};

// Each function throws kInvalidDpConfig for parameters outside their ranges, and for a delta that
// the charge for delta0 uses up while delta < delta0. Results never exceed epsilon0, which holds
// without any amplification (at delta >= delta0). All are rounded up.

// Theorem 3.1 in closed form: with w = 8 sqrt(e^e0 log(4/d)/n) + 8 e^e0/n,
//   log(1 + w (1 - e^-e0)/(1 + e^-e0/(1 + w)))   where e0 <= log(n/(16 log(4/d))),
// epsilon0 where that condition fails. This is the form behind the published figures; the final
// version of the paper has the slightly smaller factor (1 - e^-e0)/(1 + e^-e0).
double shuffle_epsilon_closed_form(const ShuffledRecords& records, double delta);

// The charge for delta0 at epsilon, rounded up; may exceed 1.
double shuffle_delta_charge(const ShuffledRecords& records, double epsilon);

// delta(epsilon) of the pair above, enclosed, without the charge. epsilon >= 0.
// Relative width about 1e-9; the cost grows as sqrt(n) (about 1 ms at n = 10^7).
Interval shuffle_pair_delta(const ShuffledRecords& records, double epsilon);

// The least epsilon with delta(epsilon) + charge <= delta: upper is certified to suffice. lower is
// below the epsilon of the pair without the charge: it says how tight the computation is, not what
// some randomizer does. Typically several times below the closed form.
Interval shuffle_epsilon(const ShuffledRecords& records, double delta);

// AmplificationByShuffling_v1 of the specification: the factor by which shuffled epochs reduce
// epsilon. It is 1 for a shuffled epoch, for no amplification is proven there (and shuffled batches
// can be far worse than Poisson ones); kInvalidDpConfig for every other sampling, which has its own
// accounting.
double amplification_by_shuffling(const Sampling& sampling);

}  // namespace discreet::accounting
