#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "discreet/config/config_preset.h"
#include "discreet/config/config_table.h"

namespace discreet {

// A value on one line, as written in a configuration file; text is quoted if a bare word would be
// read as something else.
std::string yaml_text(const KeyValue& value);

// "# text" in comment lines of at most 100 columns, after `indent` spaces.
std::string yaml_comment(std::size_t indent, const std::string& text);

// Null without a name; kInvalidDpConfig, with the nearest name, if it is unknown.
const Preset* find_preset(std::optional<std::string_view> name);

}  // namespace discreet
