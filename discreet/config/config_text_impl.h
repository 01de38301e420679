#pragma once

#include <string>

#include "discreet/config/config_table.h"

namespace discreet {

// A value on one line, as written in a configuration file; text is quoted if a bare word would be
// read as something else.
std::string yaml_text(const KeyValue& value);

}  // namespace discreet
