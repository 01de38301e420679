#pragma once

#include <string>

namespace discreet::cli {

// The bytes of a configuration file; "-" is standard input. Throws kInvalidInput if it cannot be
// opened or is a directory, kIoError if it cannot be read to its end. Reads at most a little more
// than a configuration may have.
std::string read_config_file(const std::string& path);

}  // namespace discreet::cli
