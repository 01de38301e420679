#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/admission/gate.h"

namespace discreet::admission {

// The text files in which contributions and statements are passed on. `name` is for messages; a
// line that is none throws kInvalidInput with its number.

// A line of an anchor file, JSON: "descriptor" and "attestation" in hexadecimal are what counts
// ("attestation" may be missing); the other members repeat it for people and other tools, and are
// not read. What the bytes hold is the gate's business.
struct Anchored {
  int line;
  Contribution contribution;
};
std::vector<Anchored> parse_anchors(std::string_view text, const std::string& name);

// Lines {"statement": hexadecimal}, verified.
Statements parse_statements(std::string_view text, const std::string& name);

// Hashes of descriptors, 64 hexadecimal digits a line.
std::set<Digest> parse_hashes(std::string_view text, const std::string& name);

}  // namespace discreet::admission
