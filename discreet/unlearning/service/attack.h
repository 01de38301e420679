#pragma once

#include <cstdint>

#include "discreet/accounting/composition.h"

// The lower bound on epsilon that an attacker's success proves.
// Proof: attack.md
namespace discreet::unlearning {

// Clopper and Pearson: an interval that contains the success probability p, given `successes` in
// `trials`, except with probability `alpha` on each side. Rounded outwards. successes <= trials, 1
// <= trials <= 10^8, alpha in (0, 1/2), otherwise kInvalidInput.
accounting::Interval clopper_pearson(std::uint64_t successes, std::uint64_t trials, double alpha);

// How often a test that was fixed in advance, on other runs, said "the record was present".
struct AttackCounts {
  std::uint64_t hits_deleted;  // in runs that inserted and deleted it
  std::uint64_t hits_never;    // in runs that never had it
  std::uint64_t runs;          // of each kind, fresh and independent
};

// A lower bound of epsilon at delta: if deletion is (epsilon, delta)-private, the result exceeds
// epsilon with probability at most alpha. A low value, such as 0, proves nothing. delta in [0, 1),
// alpha in (0, 1).
double epsilon_lower_bound(const AttackCounts& counts, double delta, double alpha);

}  // namespace discreet::unlearning
