#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/config/config.h"

namespace discreet {

// UML_OS.DifferentialPrivacy.PreValidation_v1
//
// Checks that a configuration can be run at step t. Throws kInvalidDpConfig; the sentence starts
// with the full path of a key, names its value and what to do. Checks:
//   numbers      every key is in its range (config_table.h) and finite; noise 0 only with debug
//   sampler      step 1b: sampling_mode and subsampling agree; the sizes it needs are declared
//   accountant   it can bound the sampler's event under the adjacency, and noise that changes
//                during the run if phases or mode change it (II.G). gdp below rate 1 uses its
//                certified bound, never the central limit theorem
//   epochs       balls-and-bins and shuffled epochs: PER_EPOCH, whole epochs, no change inside one
//   adaptation   heuristic only with allow_nonprivate_adaptation, never if regulated; bounds are
//                ordered
//   regulated    no debug, secure noise; ghost clipping with ghost_bound_hash
//   noise        Laplace and discrete families need per-record gradients, the latter also
//                noise.discrete, a power of two; custom allocation needs sigma_map
//   schedule     modes that follow the budget need target_steps; phases are in order
//   accumulation current_step < gradient_accumulation_steps; is_final exactly for the last
//   counters     t < 2^24 with noise_seed_per_step
// If enabled is false, only ranges are checked.
void prevalidate(const DpConfig& config, std::uint64_t t);
// The checks that depend on t, for a resolved configuration that was accepted before its first
// step.
void prevalidate_step(const DpConfig& accepted, std::uint64_t t);

// The reasons why a run of this configuration is marked not_private, one sentence each; empty if it
// is private. The configuration must pass prevalidate.
std::vector<std::string> not_private_reasons(const DpConfig& config);

// ---------------------------------------------------------------- for a resolved configuration

// True for samplers whose event is the epoch.
bool is_epoch_event(SamplingMode mode);
// The value of `subsampling` that a sampling mode requires.
Subsampling subsampling_of(SamplingMode mode);

// The sampler for the accountants; throws kInvalidDpConfig, naming the missing size. Ghost clipping
// has the rate min(1, accounting_adjustment_factor q).
accounting::Sampling sampling_of(const DpConfig& resolved);

// One step (or epoch) as one event. noise_multiplier > 0 is that of the whole step, sigma_eff,
// however it is divided among the parts of the model; adaptive clipping adds the two counts of one
// part.
accounting::Event step_event(const DpConfig& resolved, double noise_multiplier);

}  // namespace discreet
