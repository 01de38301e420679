#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "discreet/accounting/plan.h"

namespace discreet::accounting {

// Proof: plan.md

// How long a run may be if its noise is given: the largest number of steps, for each sampler, whose
// certified epsilon keeps the target.
struct LongestRun {
  Sampling sampling;    // FixedSize{0, 0} if the sizes are unknown
  Adjacency adjacency;  // defines what epsilon means; differs between samplers
  std::uint64_t steps;  // >= 1; whole epochs for balls_and_bins and shuffled_epoch
  std::uint64_t unit;   // steps that are released together: an epoch of those two, otherwise 1
  Interval epsilon;     // of these steps; upper <= target
  // The epsilon of `unit` steps more, whose upper end exceeds the target: they are not certified to
  // fit. Beyond 10^9 units it is that of up to 1e-9 more. Empty if 2^50 steps fit, or the search
  // gave up after 80 evaluations.
  std::optional<Spent> beyond;
};

struct LongestRuns {
  std::vector<LongestRun> planned;      // starts with Poisson
  std::vector<SkippedSampler> skipped;  // not even one step (or epoch) fits, or it does not apply
};

// one_epoch: of workload_from_sizes(records, batch, 1), or workload_from_rate(rate, 1): only the
// rate and the sizes matter. noise_multiplier > 0. Without sampling, a step takes every record.
// Throws kInvalidDpConfig for a value out of range, and if not even one step of Poisson sampling
// keeps the target: it states what is attainable.
LongestRuns longest_runs(const Workload& one_epoch, double noise_multiplier, const Target& target,
                         const Progress& progress = {});

}  // namespace discreet::accounting
