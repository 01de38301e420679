#pragma once

#include <string>
#include <vector>

#include "discreet/admission/gate.h"

namespace discreet::cli {

// The bytes of an input file. Throws kInvalidInput if it cannot be opened.
std::string read_input(const std::string& path);

// A line of an anchor file, JSON: "descriptor" and "attestation" in hexadecimal are what counts
// ("attestation" may be missing); the other members repeat it for people and other tools, and are
// not read. A line that is no such object throws kInvalidInput with its number; what the bytes hold
// is the gate's business.
struct Anchored {
  int line;
  admission::Contribution contribution;
};
std::vector<Anchored> read_anchors(const std::string& path);

// The lines of a statement file, {"statement": hexadecimal} each, verified.
admission::Statements read_statements(const std::string& path);

// Puts lines at the end of a file, whole or not at all.
void append_lines(const std::string& path, const std::string& lines);

// The private key in a file; `passphrase_file` holds the passphrase in its first line, or is empty.
admission::SigningKey read_key(const std::string& path, const std::string& passphrase_file);
std::string read_passphrase(const std::string& path);

}  // namespace discreet::cli
