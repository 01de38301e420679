#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/config/config.h"
#include "discreet/config/config_resolve.h"

namespace discreet {

// From text to a configuration. A file is one YAML document (1.2, without anchors, aliases, merges
// and tags; at most 1 MiB); its keys are those of config_table.h, nested by their dots.
//
// What counts: the preset that `extends` names, then the file, then settings; later wins. A key
// that none of them gives has its default. Five defaults follow from what is given:
//   subsampling             from sampling_mode, and sampling_mode from subsampling
//   adjacency               zero_out for shuffled epochs and sequential batches, where removing a
//                           record moves others
//   accountant_granularity  PER_EPOCH for samplers whose event is the epoch
//   nonfinite               zero if regulated
//
// Numbers are decimal: 1000, 0.1, 1e-5. Not taken are .inf, .nan, 0x10, 010, 1_000, quoted numbers,
// and numbers that binary64 cannot hold (1e400) or would turn into 0 (1e-400). A whole number may
// be written 1e6. Truth is true or false, not yes or no.
//
// Errors are kInvalidDpConfig. The sentence names, in this order, where ("train.yaml:12"), the key
// with its whole path, the value, and what is taken instead: the nearest spelling or the range.

struct ReadConfig {
  Config config;
  std::map<std::string, std::string> where;  // by path: what gave it, "train.yaml:12"
};

// settings: "key=value" each, the value in YAML; a key below security.differential_privacy may be
// given without that prefix. name: what errors call the file.
ReadConfig read_config(std::string_view yaml, std::string_view name,
                       std::span<const std::string> settings = {});

// Reads, prevalidates and resolves; errors of all three say where the key was given.
struct LoadedConfig {
  Config config;  // resolved
  AccumulationContext accumulation;
  std::vector<std::string> notes;
};
LoadedConfig load_config(std::string_view yaml, std::string_view name,
                         std::span<const std::string> settings = {});

}  // namespace discreet
