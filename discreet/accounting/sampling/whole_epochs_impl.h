#pragma once

#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/accounting/pld.h"

namespace discreet::accounting {

// Samplers whose steps are no Composition: the whole multiset of their events is one question, and
// is answered by balls_and_bins.h, fixed_size.h, shuffle.h or truncated_poisson.h.
enum class Family : std::uint8_t {
  kComposition,     // reduce() takes it
  kBallsAndBins,    // any mixture of noise multipliers and numbers of batches
  kFixedReplace,    // fixed size under replace_one, all steps alike
  kShuffledEpochs,  // all epochs alike
  kTruncated,       // all steps alike
};

// The family of an event. Throws kInvalidDpConfig by name if nothing here accounts for it.
Family family_of(const Event& event);

// Throws kInvalidDpConfig by name unless `next` may join `before`, which is of one family.
void require_joinable(const Event& before, const Event& next);

// epsilon(delta) of events of one family other than kComposition; not empty.
//   relative_width: of epsilon, in [1e-6, 1]; what is not known comes on top.
Certified whole_epochs_epsilon(const std::vector<RepeatedEvent>& events, double delta,
                               double relative_width);

// delta(epsilon). Only for balls and bins; other families are refused by name.
Certified whole_epochs_delta(const std::vector<RepeatedEvent>& events, double epsilon,
                             double relative_width);

}  // namespace discreet::accounting
