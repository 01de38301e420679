#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/options/command.h"

namespace discreet::cli {

// "discreet explain --policy FILE [OPTIONS] DESCRIPTOR".
std::string usage_of(const Command& command);
// "--delta N", "RUN".
std::string form_of(const Option& option);
// The help, and in brackets what else holds: "[required]", "[default: pld]".
std::string help_of(const Option& option);

// What `--help` prints.
std::string help_of(const Command& command);
// What `--help --json` prints: the same of the command and everything below it, as one object.
nlohmann::json help_json(const Command& command);

}  // namespace discreet::cli
