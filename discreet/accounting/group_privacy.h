#pragma once

#include <cstdint>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/accounting/pld.h"

namespace discreet::accounting {

// Proof: group_privacy.md

// What a run promises to k records together, all of one person for instance. Compared are: all of
// them present, and all of them absent (add_remove), zeroed (zero_out) or replaced (replace_one,
// without sampling or in shuffled epochs only). Both directions, every group of at most k records.
// Not covered: k edits of different kinds, and replacements where the adjacency is another one.
//
// The interval contains the epsilon of the pair that dominates the run:
//   poisson, none    all k records' steps aligned, attained by equal gradients. With w_j =
//                    P[Bin(k, q) = j], a step is sum_j w_j N(j, sigma^2) against N(0, sigma^2).
//                    At a fixed delta epsilon can grow faster than k-fold.
//   balls_and_bins,  a bound only (path kBracket): the k records in one batch. `lower` is that of
//   shuffled_epoch   one record.
//   guarantee        the chain of k neighbours: (k e, d (e^(k e) - 1)/(e^e - 1)).
// Noise: gaussian, gaussian_groups, rounded_gaussian. Groups so large that a step's loss passes
// 600, or more than 400 counts of members matter, get a bound only (kBracket).

inline constexpr std::uint64_t kLargestGroup = std::uint64_t{1} << 32;

// epsilon at delta in (0, 1) of the events together.
//   group:    k in [1, 2^32]; 1 gives what PldAccountant gives
//   distance: of what is released from the ideal mechanism, in total variation over the whole run:
//             what the sampler of noise leaves out, for instance. It is taken off delta as
//             distance (1 + e^epsilon), at the epsilon that is returned. In [0, 1).
// Throws kInvalidDpConfig, by name, for other noise and for sampling that has no certified group
// epsilon (truncated_poisson, fixed_size), for what PldAccountant rejects, for a value out of
// range, and where the distance leaves nothing of delta;
// kAccountantOverflow where no bound is finite.
Certified group_epsilon(const std::vector<RepeatedEvent>& events, std::uint64_t group, double delta,
                        double distance = 0);

// The same of a composition that reduce() gave for one record, without a distance.
//   accuracy: as for certified_epsilon, which answers for one record; of groups accuracy.transform
//             is relative
Certified certified_group_epsilon(const Composition& steps, std::uint64_t group, double delta,
                                  const Accuracy& accuracy = {1e-10, 2e-4});

// delta(epsilon), epsilon >= 0 and finite; throws as group_epsilon, and by name for epochs.
Certified group_delta(const std::vector<RepeatedEvent>& events, std::uint64_t group,
                      double epsilon);

}  // namespace discreet::accounting
