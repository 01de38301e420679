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
  admission::Descriptor descriptor;  // of one of the contributions
  admission::Resolution resolution;
  bool amplified;

  // Admission::multiplier of an amplified promise in the ledger; otherwise 0.
  std::uint64_t recorded_multiplier() const;
};

// The epsilon of a contribution, zero-out, by the accountant of the corpus.
struct ContributionAccount {
  double epsilon = 0, delta = 0;
};
// After this many uses (of an amplified class: steps of its schedule). use: of its class
// (Mechanism::use_of). delta: of classes that are not amplified; the others have their own.
ContributionAccount account_of_contribution(const admission::Policy& policy,
                                            const CorpusClass& terms,
                                            const accounting::Mechanism& use, std::uint64_t uses,
                                            double delta);

// Throws kInvalidDpConfig if the class is amplified for a sampler other than the run's.
void require_sampler(const admission::ClassPolicy& own, const std::string& name,
                     const mechanism::SamplingPlan& sampling);

// The terms of an epoch for the ledger, by data class; steps: of a whole epoch. The noise is that
// of the policy for a record clipped to norm C and not further: with a flat bound, the smallest of
// the class's blocks; with a bound per block, which follows the noise of each, its root mean
// square. With several plans of one class, the smallest.
//
// Throws kInvalidDpConfig if the ledger would then sign more noise than a use has
// (Mechanism::use_of).
std::vector<ledger::Terms> epoch_terms(const admission::Policy& policy,
                                       std::span<const CorpusClass> classes,
                                       const mechanism::Mechanism& mechanism);

// Throws kInvalidDpConfig if the error of the noise sampler over the steps of a run takes more of
// the ledger's delta than a run may use (2^-50 of it; spend.md allows for 2^20 runs), at the
// largest epsilon that a class is promised.
void require_room(std::span<const CorpusClass> classes, const mechanism::Mechanism& mechanism,
                  Injection injection, std::uint64_t steps, std::uint64_t delta_atto);

}  // namespace discreet::training
