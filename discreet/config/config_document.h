#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace discreet {

// Three views of the table of keys (config_table.h): for editors, for a first configuration and for
// reference.

// JSON Schema, draft 2020-12, of a configuration file: types, ranges, spellings, defaults. It
// accepts every file that `discreet check` accepts; only that command checks combinations of keys.
std::string config_schema();

// A configuration file with every key: the few required ones with values, all others commented out
// with their defaults (or the preset's values). `discreet check` accepts it unchanged. preset: one
// of preset_names(); kInvalidDpConfig, with the nearest name, for any other.
std::string config_starter(std::optional<std::string_view> preset = std::nullopt);

// Every key with its type, default and meaning, and the presets, in Markdown: the reference part of
// docs/reference/configuration.md.
std::string config_reference();

}  // namespace discreet
