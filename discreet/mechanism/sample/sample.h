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

// Who takes part in a step, by a law that the accountant knows. A plan is what was declared: it has
// no key and no data, and hands over the accounting event. A sampler is a plan, a number of rows
// and a key, and gives the batches.
//
// Rate, batch and denominators come from declared numbers only. The rows that are there may differ
// from the declared N0 by a few; if the rate followed them, the noise would show how many there
// are.

// Step 1b of the specification, and Poisson which its list omits:
//   POISSON_V1, TRUNCATED_POISSON_V1                     subsampling POISSON
//   SHUFFLE_WITHOUT_REPLACEMENT_{FIXED_SIZE, BALLS_AND_BINS, EPOCH}_V1
//                                                        SHUFFLE_WITHOUT_REPLACEMENT
//   SEQUENTIAL_V1                                        NONE
// Throws kInvalidDpConfig for any other pair, naming both and the one that fits.
void check_sampling(SamplingMode mode, Subsampling subsampling);

// What is declared, resolved: equal meaning gives equal fields. Any two of rate, batch and N0 give
// the third: q = B / N0 (nearest binary64: the number that is sampled with and accounted), B = q N0
// and N0 = B / q (nearest integer, at least 1).
struct SamplingPlan {
  SamplingMode mode = SamplingMode::kPoisson;
  accounting::Adjacency adjacency = accounting::Adjacency::kAddRemove;
  std::optional<std::uint64_t> size;   // N0, >= 1; none: nothing declares it
  std::optional<double> rate;          // q in (0, 1]
  std::optional<std::uint64_t> batch;  // B: expected, or exact where the mode fixes it; >= 1
  std::optional<std::uint64_t> most;   // truncated Poisson: the largest batch, in [1, N0]
  std::uint64_t steps_per_epoch = 1;   // ceil(N0 / B), or ceil(1 / q) where N0 is not declared

  // What the accountant composes, once for every steps_per_event() steps.
  //   Poisson            Poisson{q}
  //   truncated Poisson  TruncatedPoisson{q, most, N0}
  //   fixed size         FixedSize{B, N0}
  //   balls and bins     BallsAndBins{steps_per_epoch}, the whole epoch
  //   shuffled epoch     ShuffledEpoch{steps_per_epoch}, the whole epoch
  //   sequential         NoSampling: as if every record took part in every step
  accounting::Sampling sampling() const;
  std::uint64_t steps_per_event() const noexcept;

  // Throws kInvalidDpConfig unless the fields are those of a plan that plan_sampling gives.
  void check() const;

  // The specification's sampler_config_hash: SHA-256 of deterministic CBOR of the fields. No key,
  // no row count, no rank.
  Digest hash() const;

  friend bool operator==(const SamplingPlan&, const SamplingPlan&) = default;
};

// Reads sampling_mode, subsampling, adjacency, declared_size, sampling_rate, effective_batch_size
// and truncated_batch. Throws kInvalidDpConfig, naming key, value and remedy, if
//   mode and subsampling, or mode and adjacency, do not fit (check_sampling, accounting::Event);
//   a number is out of range, one that the mode needs is missing, or |q N0 - B| >= 1;
//   nothing declares N0 under add_remove: the number of records is then not protected, and the
//   adjacency that holds is zero_out;
//   sequential batches smaller than all records under add_remove: removing one record would move
//   every later one to another place, and all batches would change;
//   an epoch has more than 2^24 steps.
SamplingPlan plan_sampling(const DpConfig& config);

// Batches as a function of (key, step): the same for any number of ranks, threads and calls before.
class Sampler {
 public:
  // rows: the records that are there, numbered 0 … rows - 1; at most 2^51, else kInvalidInput.
  //   Poisson, balls and bins: any number; each record has its own coin or lot.
  //   Truncated Poisson, fixed size: N0, because the law of one record depends on how many there
  //   are. Shuffled epochs and sequential batches: N0 if it is declared. Otherwise
  //   kInvalidDpConfig. The guarantee compares data sets of N0 records with their neighbours; that
  //   the real one has N0 is public.
  // plan: checked. generator: of stream::kSampling; the key serves this plan only.
  Sampler(SamplingPlan plan, std::uint64_t rows, random::Generator generator);

  const SamplingPlan& plan() const noexcept { return plan_; }
  std::uint64_t rows() const noexcept { return rows_; }

  // The records of step t = 0, 1, …, ascending; it may be empty. Throws kInvalidDpConfig for a step
  // (balls and bins, shuffled: an epoch) of 2^24 or more, and as Generator::require_own_process().
  //   Poisson            each record with probability exactly q
  //   truncated Poisson  the same; if more than `most` come, a uniform subset of `most` of them
  //   fixed size         a uniform subset of B records
  //   balls and bins     epoch t / S: each record in one of its S steps, uniformly
  //   shuffled epoch     epoch t / S: a uniform permutation, cut into S parts of equal size up to 1
  //   sequential         part t mod S of 0 … rows - 1, cut likewise
  // Cost: O(rows) a step for Poisson (half a nanosecond a record), O(B) for fixed size; O(rows) an
  // epoch for balls and bins and shuffled epochs, whose current epoch is remembered in 8 bytes a
  // record: one call at a time.
  std::vector<std::uint64_t> batch(std::uint64_t step);

  // The share of one rank: the records r of batch(step) with r mod world == rank, ascending.
  // Whose a record is does not depend on the batch, and the shares of all ranks are the batch.
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
