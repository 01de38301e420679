#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "discreet/admission/resolver.h"
#include "discreet/ledger/entry.h"
#include "discreet/mechanism/step/apply.h"

namespace discreet::training {

// The contributions of a run with one bound, one class and one adapter: one plan.
struct CorpusClass {
  admission::Descriptor descriptor;  // of one of them
  admission::Resolution resolution;
  bool amplified;

  // Admission::multiplier of an amplified promise in the ledger; 0 of others.
  std::uint64_t recorded_multiplier() const;
};

// What an epoch of a run is to the ledger, by data class; steps: of a whole epoch. Its noise is
// that of the policy as a record sees it that is cut to norm C and no further: with a flat bound
// the least of the class's blocks; with a bound per block, which follows the noise of each, its
// root mean square. Of several plans of one class the least.
//
// Throws kInvalidDpConfig if the ledger would then sign more noise than a use has
// (Mechanism::use_of).
std::vector<ledger::Terms> epoch_terms(const admission::Policy& policy,
                                       std::span<const CorpusClass> classes,
                                       const mechanism::Mechanism& mechanism);

// Throws kInvalidDpConfig if what the sampler of noise leaves out over the steps of a run takes
// more of the ledger's delta than a run may (2^-50 of it: spend.md has room for 2^20 runs), at the
// largest epsilon that a class is promised.
void require_room(std::span<const CorpusClass> classes, const mechanism::Mechanism& mechanism,
                  Injection injection, std::uint64_t steps, std::uint64_t delta_atto);

}  // namespace discreet::training
