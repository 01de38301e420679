#pragma once

#include <string>

#include "cli/options/command.h"

namespace discreet::cli {

// Scripts that complete the commands, options and values of `root` in a shell.
std::string bash_completion(const Command& root);
std::string zsh_completion(const Command& root);
std::string fish_completion(const Command& root);

}  // namespace discreet::cli
