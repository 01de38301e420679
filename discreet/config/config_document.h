#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace discreet {

// Three views of the table of keys (config_table.h), for editors, beginners and readers.

// JSON Schema, draft 2020-12, of a configuration file: types, ranges, spellings, defaults. It
// accepts every file that `discreet check` accepts; what keys mean together is checked only there.
std::string config_schema();

// A configuration file with every key: the few that a run needs with values, all others commented
// out at their defaults (or at what the preset sets). `discreet check` accepts it as it is. preset:
// a name of preset_names(); kInvalidDpConfig, with the nearest name, for any other.
std::string config_starter(std::optional<std::string_view> preset = std::nullopt);

// Every key with what it takes, its default and its meaning, and the presets, in Markdown: the
// reference part of docs/configuration.md.
std::string config_reference();

}  // namespace discreet
