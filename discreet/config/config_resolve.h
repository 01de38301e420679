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
// One meaning, one form. resolve() merges what a configuration says in several places:
//   modules, groups     into clip_norm_map, per_layer_multiplier, public_modules, public_groups;
//                       an override wins over an entry of a map
//   phases              lengths into boundaries (warmup.until_step, main.until_step)
//   strategy            ghost and clipping.ghost, adaptive and clipping.norm: adaptive, are one
//   sizes               any two of sampling_rate q, effective_batch_size B and declared_size N give
//                       the third: q = B / N, B = q N, N = B / q (to the nearest whole number, at
//                       least 1). Samplers without coins have q = B / N; without sampling B is N
//                       unless it is given
//   adjacency           add_remove without N becomes zero_out: nothing declares how many records
//                       there are
//   parallelism.type    becomes what the process runs on
//   lists, maps         sorted, without repetitions; an empty one is none
//   accumulation        the given position, or that of the configuration, or the first microbatch
// It is pure and idempotent: resolving a resolved configuration changes nothing.

struct Resolved {
  DpConfig config;
  AccumulationContext accumulation;
  // Sentences a person should read: what was changed, what has no effect.
  std::vector<std::string> notes;
};

// runs_on: the engine of this process. Throws kInvalidDpConfig, the sentence beginning with the
// key, where two places contradict each other.
Resolved resolve(const DpConfig& config,
                 std::optional<AccumulationContext> accumulation = std::nullopt,
                 ParallelismType runs_on = ParallelismType::kDpOnly);

// run.epochs E as target_steps = E batches_per_epoch(), and no epochs; any other configuration as
// it is. Throws kInvalidDpConfig if target_steps is given too and differs, or if the steps of an
// epoch are not determined.
Config without_epochs(Config config);

// ---------------------------------------------------------------- of a resolved configuration

// The phase of step t: by the boundaries if there are any, else training_phase.
TrainingPhase phase_at(const DpConfig& resolved, std::uint64_t t);
// The configuration as it is in a phase: its overrides merged in. The phases stay as they are.
DpConfig in_phase(const DpConfig& resolved, TrainingPhase phase);
// Steps of an epoch: ceil(N / B), or ceil(1 / q) where N is not declared.
std::uint64_t batches_per_epoch(const DpConfig& resolved);

// The files that a configuration names, but for the private key.
std::vector<std::optional<std::string>*> files_of(Config& config);
// What may be published: the files' names without their folders, and no private key.
Config without_places(Config config);

// Deterministic CBOR of every setting, by path: same meaning, same bytes. The position of
// accumulation is no part of it, nor are the folders of files (unless has_whole_paths).
Bytes canonical_bytes(const Config& resolved);
// SHA-256 of canonical_bytes.
Digest config_hash(const Config& resolved);
// Every setting as YAML, files as they are named; reads back to the same hash.
std::string write_yaml(const Config& resolved);

}  // namespace discreet
