#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "discreet/base/yaml.h"
#include "discreet/config/config_table.h"

namespace discreet {

// The origin of a value: a file with line numbers, or a setting.
struct Source {
  std::string name;
  bool has_lines = true;
  std::string at(int line) const { return has_lines ? name + ":" + std::to_string(line) : name; }
};

// Reads one value for a key; `line` is that of the key. Throws kInvalidDpConfig: "source:line: path
// is ...".
template <class Target>
KeyValue read_value(const Key<Target>& key, const Yaml& node, const Source& source, int line,
                    std::string_view path);

// Calls `take` for every key in a mapping, with its value and line. Throws for an unknown key,
// naming the nearest known one. An empty section has no keys.
template <class Target>
void walk_keys(const KeyTree<Target>& tree, const Yaml& node, const std::string& path,
               const Source& source,
               const std::function<void(const Key<Target>&, const Yaml&, int)>& take);

}  // namespace discreet
