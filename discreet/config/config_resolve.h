#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "discreet/base/bytes.h"
#include "discreet/base/hash.h"
#include "discreet/config/config.h"

namespace discreet {

// UML_OS.DifferentialPrivacy.ConfigResolver_v1
//
// Brings a configuration into its canonical form. resolve() merges settings that can be given in
// several places:
//   modules, groups     into clip_norm_map, per_layer_multiplier, public_modules, public_groups;
//                       an override replaces an entry of a map
//   phases              lengths become boundaries (warmup.until_step, main.until_step)
//   strategy            ghost equals clipping.ghost; adaptive equals clipping.norm: adaptive
//   sizes               any two of sampling_rate q, effective_batch_size B and declared_size N give
//                       the third: q = B / N, B = q N, N = B / q (rounded to an integer, at least
//                       1). Samplers without coins have q = B / N; without sampling B is N unless
//                       it is given
//   adjacency           add_remove without N becomes zero_out, because the number of records is
//                       not declared
//   parallelism.type    becomes the engine of the process
//   lists, maps         sorted, without duplicates; an empty one is absent
//   accumulation        the argument, else that of the configuration, else the first microbatch
// It is pure and idempotent: resolving a resolved configuration changes nothing.

struct Resolved {
  DpConfig config;
  AccumulationContext accumulation;
  // Sentences for the user: what was changed, what has no effect.
  std::vector<std::string> notes;
};

// runs_on: the engine of this process. Throws kInvalidDpConfig, with a sentence that starts with
// the key, if two settings contradict each other.
Resolved resolve(const DpConfig& config,
                 std::optional<AccumulationContext> accumulation = std::nullopt,
                 ParallelismType runs_on = ParallelismType::kDpOnly);

// Converts run.epochs E to target_steps = E batches_per_epoch() and removes epochs; leaves any
// other configuration unchanged. Throws kInvalidDpConfig if target_steps is also given and differs,
// or if the number of steps per epoch is undetermined.
Config without_epochs(Config config);

// ---------------------------------------------------------------- for a resolved configuration

// The phase of step t: from the boundaries if there are any, otherwise training_phase.
TrainingPhase phase_at(const DpConfig& resolved, std::uint64_t t);
// The configuration during a phase, with the overrides of the phase merged. The phases are kept.
DpConfig in_phase(const DpConfig& resolved, TrainingPhase phase);
// The number of steps per epoch: ceil(N / B), or ceil(1 / q) if N is not declared.
std::uint64_t batches_per_epoch(const DpConfig& resolved);

// The files that a configuration names, except the private key.
std::vector<std::optional<std::string>*> files_of(Config& config);
// The publishable form: file names without folders, and no private key.
Config without_places(Config config);

// Deterministic CBOR of every setting, by path: equal meaning gives equal bytes. Excludes the
// accumulation position and the folders of files (unless has_whole_paths).
Bytes canonical_bytes(const Config& resolved);
// SHA-256 of canonical_bytes.
Digest config_hash(const Config& resolved);
// Every setting as YAML, with file names as given; reading it gives the same hash.
std::string write_yaml(const Config& resolved);

}  // namespace discreet
