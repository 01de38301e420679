#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/config/config.h"
#include "discreet/config/config_resolve.h"

namespace discreet {

// Reads a configuration from text. A file is one YAML document (1.2, without anchors, aliases,
// merges and tags; at most 1 MiB); its keys are those of config_table.h, nested by their dots.
//
// Values come from the preset that `extends` names, then the file, then `settings`; later ones
// override earlier ones. A key that none of them gives has its default. Five defaults depend on
// other keys:
//   subsampling             from sampling_mode, and sampling_mode from subsampling
//   adjacency               zero_out for shuffled epochs and sequential batches, where removing a
//                           record would move others
//   accountant_granularity  PER_EPOCH for samplers whose event is the epoch
//   nonfinite               zero if regulated
//
// Numbers are decimal: 1000, 0.1, 1e-5. Rejected are .inf, .nan, 0x10, 010, 1_000, quoted numbers,
// and numbers that overflow binary64 (1e400) or underflow to 0 (1e-400). An integer may be written
// 1e6. Booleans are true or false, not yes or no.
//
// Errors are kInvalidDpConfig. The sentence names, in this order, the place ("train.yaml:12"), the
// key with its full path, the value, and what is expected: the nearest spelling or the range.

// What became of the keys of the preset that `extends` names.
struct ReadPreset {
  std::string name;
  std::vector<std::string> kept;      // paths of keys that have the preset's value
  std::vector<std::string> replaced;  // a sentence for each key that the file or a setting replaces
};

struct ReadConfig {
  Config config;
  std::map<std::string, std::string> where;  // by path: the source of the value, "train.yaml:12"
  std::optional<ReadPreset> preset;
};

// settings: "key=value" each, with the value in YAML; the prefix security.differential_privacy may
// be omitted. name: the name of the file in error sentences.
ReadConfig read_config(std::string_view yaml, std::string_view name,
                       std::span<const std::string> settings = {});

// Reads, prevalidates and resolves. The errors of all three name the place of the key.
struct LoadedConfig {
  Config config;  // resolved
  AccumulationContext accumulation;
  // Those of Resolved; with `extends`, also which keys of the preset act and which were replaced.
  std::vector<std::string> notes;
};
LoadedConfig load_config(std::string_view yaml, std::string_view name,
                         std::span<const std::string> settings = {});

}  // namespace discreet
