#pragma once

#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/accounting/pld.h"

namespace discreet::accounting {

// Samplers whose steps do not form a Composition. The multiset of all their events is evaluated as
// a whole by balls_and_bins.h, fixed_size.h, shuffle.h or truncated_poisson.h.
enum class Family : std::uint8_t {
  kComposition,     // reduce() supports it
  kBallsAndBins,    // any mixture of noise multipliers and numbers of batches
  kFixedReplace,    // fixed size under replace_one, identical steps
  kShuffledEpochs,  // identical epochs
  kTruncated,       // identical steps
};

// The family of an event. Throws kInvalidDpConfig by name if nothing here accounts for it.
Family family_of(const Event& event);

// Throws kInvalidDpConfig by name unless `next` can be composed with `before`, which is of one
// family.
void require_joinable(const Event& before, const Event& next);

// epsilon(delta) of events of one family other than kComposition; not empty.
//   relative_width: of epsilon, in [1e-6, 1]; the unknown gap of a bracket comes on top.
Certified whole_epochs_epsilon(const std::vector<RepeatedEvent>& events, double delta,
                               double relative_width);

// delta(epsilon), for balls-and-bins only; other families are rejected by name.
Certified whole_epochs_delta(const std::vector<RepeatedEvent>& events, double epsilon,
                             double relative_width);

}  // namespace discreet::accounting
