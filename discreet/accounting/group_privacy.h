#pragma once

#include <cstdint>
#include <string_view>

#include "discreet/accounting/composition.h"

namespace discreet::accounting {

// Proof: group_privacy.md

// What a run promises to a group: one data set is the other with up to `size` records more, all of
// one person for instance. Poisson sampling, Gaussian noise. Records exchanged for others are not
// covered by kJoint: k exchanged records are a group of 2k for kConversion only.

// Which of two sound bounds gave the smaller epsilon.
enum class GroupBound : std::uint8_t {
  kConversion,  // a chain of neighbours: (e, d) for one record gives (G e, d (e^(G e)-1)/(e^e-1)),
                // at the e of the certified curve d(e) that fits the delta asked for
  kJoint,       // the group is one record: present when any member is, and G times as large
};
std::string_view to_string(GroupBound bound) noexcept;  // "conversion", "joint"

struct GroupEpsilon {
  // upper is sound and may be loose; lower is that of one record. upper is infinite where neither
  // bound can be evaluated.
  Interval epsilon;
  GroupBound bound;
};

// epsilon at delta in (0, 1) for groups of up to `size` >= 1 records. steps: as composition.h.
// Throws kInvalidDpConfig if a value is outside its range.
GroupEpsilon group_epsilon(const GaussianSteps& steps, std::uint64_t size, double delta);

}  // namespace discreet::accounting
