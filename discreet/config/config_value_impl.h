#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "discreet/base/yaml.h"
#include "discreet/config/config_table.h"

namespace discreet {

// What is read: a file, whose lines have numbers, or a setting.
struct Source {
  std::string name;
  bool has_lines = true;
  std::string at(int line) const { return has_lines ? name + ":" + std::to_string(line) : name; }
};

// One value as its key takes it; `line` is that of the key. Throws kInvalidDpConfig: "source:line:
// path is ...".
template <class Target>
KeyValue read_value(const Key<Target>& key, const Yaml& node, const Source& source, int line,
                    std::string_view path);

// Calls `take` with every key that a mapping gives, its value and its line. Throws for a key that
// is not in the tree, with the nearest that is. An empty section gives nothing.
template <class Target>
void walk_keys(const KeyTree<Target>& tree, const Yaml& node, const std::string& path,
               const Source& source,
               const std::function<void(const Key<Target>&, const Yaml&, int)>& take);

}  // namespace discreet
