#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/config/config.h"

namespace discreet {

// Views of the table of keys (config_table.h) for editors and for reference, and configurations to
// start from.

// JSON Schema, draft 2020-12, of a configuration file: types, ranges, spellings, defaults. It
// accepts every file that `discreet check` accepts; only that command checks combinations of keys.
std::string config_schema();

// A configuration file with every key: the few required ones with values, all others commented out
// with their defaults (or the preset's values). `discreet check` accepts it unchanged. preset: one
// of preset_names(); kInvalidDpConfig, with the nearest name, for any other.
std::string config_template(std::optional<std::string_view> preset = std::nullopt);

// A short configuration for the embedded digits. `discreet check` and `discreet train` accept it
// unchanged. preset: as above.
std::string config_starter(std::optional<std::string_view> preset = std::nullopt);

// The same for a CSV file. It contains names, types, and what the operator said; no value of a
// training record.
struct CsvStarter {
  std::string train;                // file, relative to the configuration
  std::optional<std::string> test;  // held-out records; empty: a tenth of the records is held out
  std::string separator = ",";
  std::vector<std::string> header;  // names, if the file has no header line
  std::string label;
  std::vector<std::string> classes;  // of the label; empty: a number in label_bounds
  std::vector<double> label_bounds;
  SpellingsMap map;
  std::vector<std::string> missing;
  std::vector<std::string> numeric, categorical;  // other columns, in the order of the file
  std::optional<std::uint64_t> records;  // declared and public; empty: a placeholder is written
};
inline constexpr std::uint64_t kPlaceholderRecords = 100000;
std::string csv_starter(const CsvStarter& about);

// Every key with its type, default and meaning, and the presets, in Markdown: the reference part of
// docs/reference/configuration.md.
std::string config_reference();

}  // namespace discreet
