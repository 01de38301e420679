#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/admission/admission_gate.h"

namespace discreet::admission {

// The text files that exchange contributions and statements. `name` is for messages; an invalid
// line throws kInvalidInput with its number.

// A line of an anchor file, in JSON. Only "descriptor" and "attestation", in hexadecimal, are read;
// "attestation" may be missing. The other members repeat the content of these two for people and
// other tools. The gate validates the bytes.
struct Anchored {
  int line;
  Contribution contribution;
};
std::vector<Anchored> parse_anchors(std::string_view text, const std::string& name);

// Lines of the form {"statement": hexadecimal}; signatures are verified.
Statements parse_statements(std::string_view text, const std::string& name);

// Hashes of descriptors, 64 hexadecimal digits per line.
std::set<Digest> parse_hashes(std::string_view text, const std::string& name);

}  // namespace discreet::admission
