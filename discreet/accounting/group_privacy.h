#pragma once

#include <cstdint>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/accounting/pld.h"

namespace discreet::accounting {

// Proof: group_privacy.md

// The epsilon of a run for k records together, for instance all records of one person. It compares
// data with all of them to data with all of them absent (add_remove), zeroed (zero_out) or replaced
// (replace_one; only without sampling or in shuffled epochs), in both directions and for every
// group of at most k records. Not covered: k edits of different kinds, and replacements under
// another adjacency.
//
// The interval contains the epsilon of the pair that dominates the run:
//   poisson, none    all k records' steps aligned, attained by equal gradients. With w_j =
//                    P[Bin(k, q) = j], a step is sum_j w_j N(j, sigma^2) against N(0, sigma^2).
//                    At a fixed delta epsilon can grow faster than k-fold.
//   balls_and_bins,  an upper bound only (path kBracket): the k records in one batch. `lower` is
//   shuffled_epoch   that of one record.
//   guarantee        the chain of k neighbours: (k e, d (e^(k e) - 1)/(e^e - 1)).
// Supported noise: gaussian, gaussian_groups, rounded_gaussian. If a group is so large that the
// loss of a step exceeds 600, or that more than 400 counts of members matter, the result is only an
// upper bound (kBracket).

inline constexpr std::uint64_t kLargestGroup = std::uint64_t{1} << 32;

// epsilon at delta in (0, 1) of all events together.
//   group:    k in [1, 2^32]; for 1 the result is that of PldAccountant
//   distance: total variation distance of the release from the ideal mechanism over the whole run,
//             for instance the error of the noise sampler. In [0, 1). It reduces delta by
//             distance (1 + e^epsilon), at the returned epsilon.
// Throws kInvalidDpConfig, by name, for other noise, for sampling without a certified group epsilon
// (truncated_poisson, fixed_size), for events that PldAccountant rejects, for a value out of range,
// and if the distance uses up delta; kAccountantOverflow if no bound is finite.
Certified group_epsilon(const std::vector<RepeatedEvent>& events, std::uint64_t group, double delta,
                        double distance = 0);

// The same for a composition that reduce() returned for one record, without a distance.
//   accuracy: as for certified_epsilon, which is used for one record; for groups,
//             accuracy.transform is relative
Certified certified_group_epsilon(const Composition& steps, std::uint64_t group, double delta,
                                  const Accuracy& accuracy = {1e-10, 2e-4});

// delta(epsilon) for finite epsilon >= 0. Throws as group_epsilon, and by name for epochs.
Certified group_delta(const std::vector<RepeatedEvent>& events, std::uint64_t group,
                      double epsilon);

}  // namespace discreet::accounting
