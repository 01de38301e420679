#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace discreet {

// The subset of YAML that configuration files use: mappings with plain keys, lists and scalars.
struct Yaml {
  enum class Kind : std::uint8_t { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  std::string text;     // the content of a scalar
  bool quoted = false;  // true for '1', which is text; false for 1, a number
  int line = 0;         // 1-based
  std::vector<Yaml> items;
  struct Entry;
  std::vector<Entry> entries;  // keys are unique
};

struct Yaml::Entry {
  std::string key;
  Yaml value;
  int line;  // line of the key
};

inline constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;
inline constexpr int kMaxConfigDepth = 16;

// Throws kInvalidDpConfig with a sentence that starts with "name:line: ". Rejects documents larger
// than kMaxConfigBytes or deeper than kMaxConfigDepth, bytes that are not UTF-8, control
// characters, indentation by tabs, a second document, anchors, aliases and merges (every value must
// be written where it applies), tags, keys that are not plain text, and duplicate keys.
Yaml parse_yaml(std::string_view text, std::string_view name);

}  // namespace discreet
