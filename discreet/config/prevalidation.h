#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/config/config.h"

namespace discreet {

// UML_OS.DifferentialPrivacy.PreValidation_v1
//
// Whether a configuration can be run at step t at all. Throws kInvalidDpConfig; the sentence begins
// with the whole path of a key, names its value and what to do. What is checked:
//   numbers      every key in its range (config_table.h), finite; noise 0 only with debug
//   sampler      step 1b: sampling_mode and subsampling agree; the sizes it needs are declared
//   accountant   it can bound the sampler's event under the adjacency, and a noise that changes
//                during the run where phases or mode change it (II.G). gdp below rate 1 is served
//                by its certified bound, never by the central limit
//   epochs       balls-and-bins and shuffled epochs: PER_EPOCH, whole epochs, no change inside one
//   adaptation   heuristic only with allow_nonprivate_adaptation, never if regulated; bounds
//                ordered
//   regulated    no debug, secure noise; ghost clipping with ghost_bound_hash
//   noise        Laplace and discrete families need per-record gradients, the latter also
//                noise.discrete, a power of two; custom allocation needs sigma_map
//   schedule     modes that follow the budget need target_steps; phases in order
//   accumulation current_step < gradient_accumulation_steps, is_final exactly at the last
//   counters     t < 2^24 with noise_seed_per_step
// A configuration with enabled: false is checked for ranges only.
void prevalidate(const DpConfig& config, std::uint64_t t);
// What of it depends on t, for a configuration that was accepted before its first step and
// resolved.
void prevalidate_step(const DpConfig& accepted, std::uint64_t t);

// Why a run under this configuration is stamped not_private, one sentence each; empty if it is
// not. Takes a configuration that prevalidate accepts.
std::vector<std::string> not_private_reasons(const DpConfig& config);

// ---------------------------------------------------------------- of a resolved configuration

// Samplers whose event is the epoch.
bool is_epoch_event(SamplingMode mode);
// What `subsampling` must be for a sampling mode.
Subsampling subsampling_of(SamplingMode mode);

// The sampler as the accountants know it; throws kInvalidDpConfig naming the size that is missing.
// Ghost clipping has the rate min(1, accounting_adjustment_factor q).
accounting::Sampling sampling_of(const DpConfig& resolved);

// One step (or epoch) as one event. noise_multiplier > 0 is that of the whole step, sigma_eff,
// however it is divided between the parts of the model; adaptive clipping adds the two counts of
// one part.
accounting::Event step_event(const DpConfig& resolved, double noise_multiplier);

}  // namespace discreet
