#pragma once

#include <string>

#include "cli/options/command.h"

namespace discreet::cli {

// The manual page, section 1, of `discreet` or of one of its commands with its subcommands, in
// roff.
std::string manual_page(const Command& command);

}  // namespace discreet::cli
