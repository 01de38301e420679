#pragma once

#include <string>

#include "discreet/mechanism/config_table.h"

namespace discreet::mechanism {

// A value on one line, as a configuration file writes it; text is quoted where a bare word would be
// read as something else.
std::string yaml_text(const KeyValue& value);

}  // namespace discreet::mechanism
