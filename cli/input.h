#pragma once

#include <string>

namespace discreet::cli {

// Checks that a command can read a file or folder; throws as cannot_open (base/files.h).
void require_file(const std::string& path);
void require_folder(const std::string& path);

// The bytes of a file; as require_file.
std::string read_input(const std::string& path);

// The bytes of a configuration file; "-" is standard input. Reads at most a little more than a
// configuration may have. Throws kIoError if it cannot be read to its end.
std::string read_config_file(const std::string& path);

}  // namespace discreet::cli
