#pragma once

#include <cstdint>

#include "discreet/accounting/composition.h"

// What an attacker's success proves about epsilon, from below.
// Proof: attack.md
namespace discreet::unlearning {

// Clopper and Pearson: an interval that contains the probability p of success, of which `successes`
// in `trials` were seen, except with probability `alpha` on each side. Rounded outwards.
// successes <= trials, 1 <= trials <= 10^8, alpha in (0, 1/2); throws kInvalidInput otherwise.
accounting::Interval clopper_pearson(std::uint64_t successes, std::uint64_t trials, double alpha);

// How often a test that was fixed beforehand, on other runs, said "the record was there".
struct AttackCounts {
  std::uint64_t hits_deleted;  // in runs that inserted and deleted it
  std::uint64_t hits_never;    // in runs that never had it
  std::uint64_t runs;          // of each kind, fresh and independent
};

// A lower bound of epsilon at delta: if deletion is (epsilon, delta)-private, the result exceeds
// epsilon with probability at most alpha. 0 proves nothing; neither does any low value.
// delta in [0, 1), alpha in (0, 1).
double epsilon_lower_bound(const AttackCounts& counts, double delta, double alpha);

}  // namespace discreet::unlearning
