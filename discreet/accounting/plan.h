#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/accounting/calibrate.h"
#include "discreet/accounting/event.h"

namespace discreet::accounting {

// Proof: plan.md

// Decisions before training: the noise that each sampler needs for one promise, and the cost of
// alternatives, for one record or for a group of target.group records. Every epsilon is certified;
// every noise multiplier was evaluated and has upper <= target. It exceeds the smallest certifiable
// one by at most 1e-4 (Poisson, fixed size, none, shuffled) or 2e-3 (balls-and-bins) relative.

// A planned training run.
struct Workload {
  double rate;          // probability that a record takes part in a step, in (0, 1]
  std::uint64_t steps;  // >= 1
  struct Sizes {
    std::uint64_t records;  // N, declared and public
    std::uint64_t batch;    // B
    std::uint64_t epochs;   // K
    std::uint64_t batches;  // per epoch: ceil(N / B)
  };
  std::optional<Sizes> sizes;
};

// Both throw kInvalidDpConfig, naming the value, unless 0 < rate <= 1, steps >= 1, 1 <= batch <=
// records, epochs >= 1, and the number of steps ceil(N / B) K is at most 2^53.
Workload workload_from_rate(double rate, std::uint64_t steps);
Workload workload_from_sizes(std::uint64_t records, std::uint64_t batch, std::uint64_t epochs);

// ---------------------------------------------------------------- noise for each sampler

struct PlannedSampler {
  Sampling sampling;        // FixedSize{0, 0} if the sizes are unknown
  Adjacency adjacency;      // defines what epsilon means; differs between samplers
  double noise_multiplier;  // standard deviation of the noise / clip norm
  Interval epsilon;         // certified at this noise; upper <= target
  // Without amplification: against an observer who knows which batches contain the record. Counts
  // all steps, or one batch per epoch if the sampler guarantees that.
  Interval unamplified;
  // Noise on the mean of a batch in units of the clip norm: sigma / expected batch. Without sizes
  // sigma / rate, that is, in units of clip norm / N.
  double noise_to_batch;
};

struct SkippedSampler {
  std::string_view sampling;  // name in the event vocabulary
  std::string reason;         // a sentence
};

struct SamplerPlan {
  std::vector<PlannedSampler> planned;  // starts with Poisson
  std::vector<SkippedSampler> skipped;  // does not fit, or cannot keep the promise
};

// Called with the name of the sampler about to be calibrated.
using Progress = std::function<void(std::string_view)>;

// Throws as calibrate_noise_multiplier does if Poisson sampling cannot keep the promise.
SamplerPlan plan_samplers(const Workload& workload, const Target& target,
                          const Progress& progress = {});

// The bracket of epsilon if the batches of an epoch are cut from a shuffle while the noise was
// planned for another sampler: the lower end is attained by a known attack, the upper end is
// proven. Adjacency zero-out. Needs sizes, and noise_multiplier in [0.01, 1000].
Interval shuffled_at(const Workload& workload, double noise_multiplier, double delta);

// ---------------------------------------------------------------- around the Poisson plan

struct Spent {
  std::uint64_t steps;
  Interval epsilon;  // of a run planned to stop there, add/remove
};

// The epsilon of Poisson sampling after each of the given numbers of steps, each >= 1.
std::vector<Spent> epsilon_over_run(const Workload& workload, double noise_multiplier,
                                    const Target& target, const std::vector<std::uint64_t>& steps);

// The cost of adapting the clip norm with two noisy counts on the same batch (median and spread):
// the noise on the gradient must increase to keep the promise.
struct AdaptiveClipping {
  std::uint32_t counts;     // 2
  double count_deviation;   // sigma_b of each count: max(5 sigma, batch / 20), so that the cost is
                            // at most about 1%
  double noise_multiplier;  // for the gradients with adaptation; certified to keep the promise
  Interval epsilon;         // upper <= target
  Interval epsilon_if_unchanged;  // with adaptation but without increasing the noise
};
AdaptiveClipping price_of_adaptive_clipping(const Workload& workload, double noise_multiplier,
                                            const Target& target);

// The smallest batch, within about 2%, with at most half the noise_to_batch at the same number of
// epochs and the same promise. Empty if even full batches have more.
struct LargerBatch {
  Workload workload;
  double noise_multiplier;
  Interval epsilon;  // upper <= target
  double noise_to_batch;
};
std::optional<LargerBatch> batch_that_halves_noise(const Workload& workload,
                                                   double noise_multiplier, const Target& target);

}  // namespace discreet::accounting
