#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/base/hash.h"
#include "discreet/config/config.h"
#include "discreet/random/generator.h"

namespace discreet::mechanism {

// Proof: sample.md

// Selects the records of a step by a law known to the accountant. A plan is the declaration: it has
// no key and no data, and determines the accounting event. A sampler is a plan with a number of
// rows and a key, and draws the batches.
//
// Rate, batch and denominators depend only on declared numbers. The actual number of rows may
// differ slightly from the declared N0; if the rate followed it, the noise would reveal it.

// Step 1b of the specification, plus Poisson, which its list omits:
//   POISSON_V1, TRUNCATED_POISSON_V1                     subsampling POISSON
//   SHUFFLE_WITHOUT_REPLACEMENT_{FIXED_SIZE, BALLS_AND_BINS, EPOCH}_V1
//                                                        SHUFFLE_WITHOUT_REPLACEMENT
//   SEQUENTIAL_V1                                        NONE
// Throws kInvalidDpConfig for any other pair, naming both values and the one that fits.
void check_sampling(SamplingMode mode, Subsampling subsampling);

// The declaration in resolved form: equal meaning gives equal fields. Any two of rate, batch and N0
// give the third: q = B / N0 (nearest binary64, used for both sampling and accounting), B = q N0
// and N0 = B / q (nearest integer, at least 1).
struct SamplingPlan {
  SamplingMode mode = SamplingMode::kPoisson;
  accounting::Adjacency adjacency = accounting::Adjacency::kAddRemove;
  std::optional<std::uint64_t> size;   // N0, >= 1; empty: not declared
  std::optional<double> rate;          // q in (0, 1]
  std::optional<std::uint64_t> batch;  // B: expected, or exact if the mode fixes it; >= 1
  std::optional<std::uint64_t> most;   // truncated Poisson: the maximum batch, in [1, N0]
  std::uint64_t steps_per_epoch = 1;   // ceil(N0 / B), or ceil(1 / q) if N0 is not declared

  // The event that the accountant composes, once for every steps_per_event() steps.
  //   Poisson            Poisson{q}
  //   truncated Poisson  TruncatedPoisson{q, most, N0}
  //   fixed size         FixedSize{B, N0}
  //   balls and bins     BallsAndBins{steps_per_epoch}, the whole epoch
  //   shuffled epoch     ShuffledEpoch{steps_per_epoch}, the whole epoch
  //   sequential         NoSampling: as if every record took part in every step
  accounting::Sampling sampling() const;
  std::uint64_t steps_per_event() const noexcept;

  // Throws kInvalidDpConfig unless plan_sampling could have returned these fields.
  void check() const;

  // The sampler_config_hash of the specification: SHA-256 of deterministic CBOR of the fields,
  // without key, row count or rank.
  Digest hash() const;

  friend bool operator==(const SamplingPlan&, const SamplingPlan&) = default;
};

// Reads sampling_mode, subsampling, adjacency, declared_size, sampling_rate, effective_batch_size
// and truncated_batch. Throws kInvalidDpConfig, naming key, value and remedy, if
//   - mode and subsampling, or mode and adjacency, do not fit (check_sampling, accounting::Event);
//   - a number is out of range, one that the mode needs is missing, or |q N0 - B| >= 1;
//   - N0 is not declared under add_remove: the number of records is then not protected, and the
//     valid adjacency is zero_out;
//   - sequential batches smaller than the data set are used under add_remove: removing one record
//     would shift all later ones and change all batches;
//   - an epoch has more than 2^24 steps.
SamplingPlan plan_sampling(const DpConfig& config);

// Batches as a function of (key, step), independent of ranks, threads and earlier calls.
class Sampler {
 public:
  // rows: the number of records present, numbered 0 … rows - 1; at most 2^51, otherwise
  // kInvalidInput.
  //   Poisson, balls and bins: any number; each record is drawn independently.
  //   Truncated Poisson, fixed size: N0, because the law of one record depends on the number of
  //   records. Shuffled epochs, sequential batches: N0 if declared. Otherwise kInvalidDpConfig.
  //   The guarantee compares data sets of N0 records with their neighbours; it is public that the
  //   data set has N0 records.
  // plan: checked. generator: of stream::kSampling; use its key for this plan only.
  Sampler(SamplingPlan plan, std::uint64_t rows, random::Generator generator);

  const SamplingPlan& plan() const noexcept { return plan_; }
  std::uint64_t rows() const noexcept { return rows_; }

  // The records of step t = 0, 1, …, ascending; may be empty. Throws kInvalidDpConfig for a step
  // (balls and bins, shuffled: an epoch) of 2^24 or more, and as Generator::require_own_process().
  //   Poisson            each record with probability exactly q
  //   truncated Poisson  the same; if more than `most` are drawn, a uniform subset of `most` of
  //   them
  //   fixed size         a uniform subset of B records
  //   balls and bins     epoch t / S: each record in one of its S steps, uniformly
  //   shuffled epoch     epoch t / S: a uniform permutation, cut into S parts of equal size up to 1
  //   sequential         part t mod S of 0 … rows - 1, cut the same way
  // Cost: O(rows) per step for Poisson (half a nanosecond per record), O(B) for fixed size; O(rows)
  // per epoch for balls and bins and shuffled epochs, which cache the current epoch in 8 bytes per
  // record. Do not call it concurrently.
  std::vector<std::uint64_t> batch(std::uint64_t step);

  // The share of one rank: the records r of batch(step) with r mod world == rank, ascending. The
  // rank of a record does not depend on the batch, and the shares of all ranks make up the batch.
  // Throws kInvalidInput unless rank < world.
  std::vector<std::uint64_t> batch(std::uint64_t step, std::uint64_t rank, std::uint64_t world);

 private:
  // The records of an epoch ordered by step, then by number; step s is [first[s], first[s + 1]).
  struct Epoch {
    std::uint64_t number = 0;
    std::vector<std::uint64_t> records;
    std::vector<std::uint64_t> first;
  };
  const Epoch& epoch(std::uint64_t number);

  SamplingPlan plan_;
  std::uint64_t rows_;
  random::Generator generator_;
  std::optional<Epoch> epoch_;
};

}  // namespace discreet::mechanism
