#pragma once

#include <string>

#include "discreet/config/config_table.h"

namespace discreet {

// A value on one line, as a configuration file writes it; text is quoted where a bare word would be
// read as something else.
std::string yaml_text(const KeyValue& value);

}  // namespace discreet
