#pragma once

#include <string>

#include "cli/options/command.h"
#include "discreet/accounting/event.h"

namespace discreet::cli {

// What a person says about who takes part in a step, as text until it is parsed.
struct SamplingOptions {
  std::string sampling = "poisson";
  std::string adjacency;  // empty: the usual one of the sampler
  std::string sampling_rate, steps, epochs, batches_per_epoch, batch_size, dataset_size, truncate;
};

// Declares the options on a command.
void add_sampling_options(Command& command, SamplingOptions& options);

accounting::Adjacency parse_adjacency(const SamplingOptions& options);

// The sampler, and how many events of it the steps are: epochs for balls_and_bins and shuffle,
// where the steps must be whole epochs; steps otherwise. With --epochs, an epoch of N records in
// batches of B has ceil(N / B) steps, and a record takes part with probability B / N (poisson,
// truncated_poisson), as in training; without sampling it is one step. Throws
// Error(kInvalidDpConfig) naming the option that is missing, superfluous or out of range.
struct ParsedSampling {
  accounting::Sampling sampling;
  std::uint64_t steps;            // releases
  std::uint64_t steps_per_event;  // 1, or those of an epoch
  std::uint64_t steps_per_epoch;  // 0: unknown
  std::uint64_t events() const { return steps / steps_per_event; }
};
ParsedSampling parse_sampling(const SamplingOptions& options);

// "Poisson sampling at rate 0.01", and what must hold for the accounting to apply.
std::string describe_sampling(const accounting::Sampling& sampling);
std::string describe_proviso(const accounting::Sampling& sampling);

}  // namespace discreet::cli
