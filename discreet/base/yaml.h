#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace discreet {

// What a configuration file needs of YAML, and no more: mappings with plain keys, lists, scalars.
struct Yaml {
  enum class Kind : std::uint8_t { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  std::string text;     // of a scalar
  bool quoted = false;  // '1' is text, 1 a number
  int line = 0;         // 1-based
  std::vector<Yaml> items;
  struct Entry;
  std::vector<Entry> entries;  // no key twice
};

struct Yaml::Entry {
  std::string key;
  Yaml value;
  int line;  // of the key
};

inline constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;
inline constexpr int kMaxConfigDepth = 16;

// Throws kInvalidDpConfig; the sentence begins "name:line: ". Refused are: more than
// kMaxConfigBytes or kMaxConfigDepth, bytes that are not UTF-8, control characters, tabs that
// indent, a second document, anchors, aliases and merges (a configuration says what it says, in
// place), tags, keys that are no plain text, a key twice.
Yaml parse_yaml(std::string_view text, std::string_view name);

}  // namespace discreet
