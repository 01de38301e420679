#pragma once

#include <cstdint>

#include "discreet/accounting/composition.h"
#include "discreet/accounting/event.h"

// Amplification by shuffling of locally noised records (Feldman, McMillan, Talwar 2021).
//
// Each of n people sends R(x_i), the output of the same (epsilon0, delta0)-LDP randomizer on their
// own record, and only the multiset of the n messages is visible. Replacing one person's record
// then costs less than epsilon0. This applies to records that were noised *before* they were
// shuffled. It does not apply to shuffled mini-batches of records without local noise, which get no
// amplification here. Adjacency of everything below: replace-one.
//
// With delta0 = 0 the two worlds are at most as distinguishable as the pair
//   C ~ Bin(n-1, e^-epsilon0), A ~ Bin(C, 1/2), D ~ Bernoulli(e^epsilon0/(1+e^epsilon0)):
//   (A + D, C - A + 1 - D)   against   (A + 1 - D, C - A + D).
// With delta0 > 0 the same bound holds with
//   (1 + e^epsilon)(1 + 2 (n-1) e^-epsilon0) delta0   added to delta.
// Proof: shuffle_model.md
namespace discreet::accounting {

struct ShuffledRecords {
  std::uint64_t count;  // n in [1, 2^34]; if delta0 is 0, a smaller number is sound
  double epsilon0;      // epsilon of the local randomizer, in (0, 300)
  double delta0 = 0;    // delta of the local randomizer, in [0, 1); > 0 for a Gaussian
};

// Each function throws kInvalidDpConfig for parameters outside their ranges, and if the charge for
// delta0 uses up delta while delta < delta0. Results never exceed epsilon0, which holds without any
// amplification (at delta >= delta0). All results are rounded up.

// Theorem 3.1 in closed form: with w = 8 sqrt(e^e0 log(4/d)/n) + 8 e^e0/n,
//   log(1 + w (1 - e^-e0)/(1 + e^-e0/(1 + w)))   if e0 <= log(n/(16 log(4/d))),
// epsilon0 otherwise. The published figures use this form; the final version of the paper has the
// slightly smaller factor (1 - e^-e0)/(1 + e^-e0).
double shuffle_epsilon_closed_form(const ShuffledRecords& records, double delta);

// The charge for delta0 at epsilon, rounded up; may exceed 1.
double shuffle_delta_charge(const ShuffledRecords& records, double epsilon);

// An enclosure of delta(epsilon) of the pair above, without the charge. epsilon >= 0. Relative
// width about 1e-9; the cost grows as sqrt(n) (about 1 ms at n = 10^7).
Interval shuffle_pair_delta(const ShuffledRecords& records, double epsilon);

// The smallest epsilon with delta(epsilon) + charge <= delta. upper is certified. lower is below
// the epsilon of the pair without the charge: it shows how tight the computation is, not what a
// particular randomizer attains. Typically several times below the closed form.
Interval shuffle_epsilon(const ShuffledRecords& records, double delta);

}  // namespace discreet::accounting
