#pragma once

#include <string>
#include <vector>

#include "cli/options/command.h"
#include "discreet/admission/anchor_file.h"
#include "discreet/base/secret_memory.h"

namespace discreet::cli {

// The files of anchor_file.h; an empty path has no statements.
std::vector<admission::Anchored> read_anchors(const std::string& path);
admission::Statements read_statements(const std::string& path);

// The private key in a file; `passphrase_file` holds the passphrase in its first line, or is empty.
admission::SigningKey read_key(const std::string& path, const std::string& passphrase_file);
SecretBytes read_passphrase(const std::string& path);
void add_passphrase_option(Command& command, std::string& path);  // of --key

}  // namespace discreet::cli
