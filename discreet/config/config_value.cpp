#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "discreet/base/error.h"
#include "discreet/base/text/nearest.h"
#include "discreet/base/text/utf8.h"
#include "discreet/config/config_value_impl.h"

namespace discreet {
namespace {

[[noreturn]] void invalid_key(std::string_view where, std::string_view path,
                              std::string_view sentence) {
  invalid_config("read_config", "{}: {} {}", where, path, sentence);
}

constexpr const char* kNotFromTheData =
    "using the mean or range of the data would be an unaccounted release";

// A key that people look for and that cannot be: why, and what to write instead.
std::string not_offered(std::string_view path) {
  for (const char* key : {"normalize", "normalise", "standardize", "standardise", "normalization",
                          "scale", "scaler", "mean", "std"}) {
    if (path != fmt::format("data.{}", key)) continue;
    return fmt::format(
        "{}; declare data.numeric: {{NAME: [lower, upper]}}, or list the column "
        "under data.private_bounds",
        kNotFromTheData);
  }
  return {};
}

std::string shown(const Yaml& node) {
  switch (node.kind) {
    case Yaml::Kind::kNull: return "null";
    case Yaml::Kind::kList: return "a list";
    case Yaml::Kind::kMap: return "a mapping";
    case Yaml::Kind::kScalar: break;
  }
  return excerpt(node.text);
}

// digits [. digits] [e [sign] digits], or . digits; without a leading zero that would be octal.
bool is_decimal(std::string_view text) {
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t begin = i;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
    return i - begin;
  };
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
  const std::size_t begin = i;
  const std::size_t whole = digits();
  if (whole > 1 && text[begin] == '0') return false;
  std::size_t fraction = 0;
  if (i < text.size() && text[i] == '.') {
    ++i;
    fraction = digits();
  }
  if (whole + fraction == 0) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    if (digits() == 0) return false;
  }
  return i == text.size();
}

// Why a scalar is no number that binary64 holds; nothing if it is.
std::string number_problem(const Yaml& node, double& number) {
  const std::string& text = node.text;
  if (node.quoted) return "it is text; remove the quotes";
  if (!is_decimal(text)) return {"?"};
  const char* begin = text.data() + (text[0] == '+' ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range) return "binary64 cannot hold it";
  if (error != std::errc{} || end != text.data() + text.size()) return {"?"};
  const std::string_view mantissa = std::string_view(text).substr(0, text.find_first_of("eE"));
  if (number == 0 && mantissa.find_first_of("123456789") != std::string_view::npos) {
    return "binary64 cannot hold it";
  }
  number += 0.0;  // -0 is 0
  return {};
}

template <class Target>
double read_number(const Key<Target>& key, const Yaml& node, std::string_view where,
                   std::string_view path) {
  double number = 0;
  const std::string problem = node.kind == Yaml::Kind::kScalar ? number_problem(node, number) : "?";
  if (problem.empty()) return number;
  invalid_key(where, path,
              problem == "?" ? fmt::format("is {}; give {}", shown(node), expectation(key))
                             : fmt::format("is {}; {}", shown(node), problem));
}

template <class Target>
std::uint64_t read_integer(const Key<Target>& key, const Yaml& node, std::string_view where,
                           std::string_view path) {
  if (node.kind == Yaml::Kind::kScalar && !node.quoted && is_decimal(node.text)) {
    const char* begin = node.text.data() + (node.text[0] == '+' ? 1 : 0);
    const char* end = node.text.data() + node.text.size();
    std::uint64_t exact = 0;
    if (const auto parsed = std::from_chars(begin, end, exact);
        parsed.ec == std::errc{} && parsed.ptr == end) {
      return exact;
    }
  }
  const double number = read_number(key, node, where, path);
  if (!(number >= 0 && number <= 0x1p53) || number != std::floor(number)) {
    invalid_key(where, path, fmt::format("is {}; give {}", shown(node), expectation(key)));
  }
  return static_cast<std::uint64_t>(number);
}

bool read_bool(const Yaml& node, std::string_view where, std::string_view path) {
  if (node.kind == Yaml::Kind::kScalar && !node.quoted) {
    for (const char* yes : {"true", "True", "TRUE"}) {
      if (node.text == yes) return true;
    }
    for (const char* no : {"false", "False", "FALSE"}) {
      if (node.text == no) return false;
    }
  }
  invalid_key(where, path, fmt::format("is {}; it must be true or false", shown(node)));
}

template <class Target>
const Yaml& require_kind(const Key<Target>& key, const Yaml& node, Yaml::Kind kind,
                         std::string_view where, std::string_view path) {
  if (node.kind == kind) return node;
  invalid_key(where, path, fmt::format("is {}; give {}", shown(node), expectation(key)));
}

std::vector<std::string> read_words(const auto& key, const Yaml& node, const Source& source,
                                    int line, std::string_view path) {
  std::vector<std::string> words;
  for (const Yaml& item : require_kind(key, node, Yaml::Kind::kList, source.at(line), path).items) {
    words.push_back(require_kind(key, item, Yaml::Kind::kScalar, source.at(item.line), path).text);
  }
  return words;
}

std::map<std::string, std::string> read_spellings(const auto& key, const Yaml& node,
                                                  const Source& source, int line,
                                                  std::string_view path) {
  std::map<std::string, std::string> spellings;
  for (const auto& [from, to, at] :
       require_kind(key, node, Yaml::Kind::kMap, source.at(line), path).entries) {
    spellings[from] = require_kind(key, to, Yaml::Kind::kScalar, source.at(at), path).text;
  }
  return spellings;
}

// [lower, upper]; what is no list of numbers is refused, the rest by complaint().
std::vector<double> read_bounds(const auto& key, const Yaml& node, const Source& source, int line,
                                std::string_view path) {
  std::vector<double> bounds;
  for (const Yaml& item : require_kind(key, node, Yaml::Kind::kList, source.at(line), path).items) {
    bounds.push_back(read_number(key, item, source.at(item.line), path));
  }
  return bounds;
}

// Bounds of one column.
std::vector<double> read_column_bounds(const auto& key, const Yaml& node, const Source& source,
                                       int line, std::string_view path) {
  if (node.kind != Yaml::Kind::kList) {
    invalid_key(source.at(line), path,
                fmt::format("is {}; expected [lower, upper], from prior knowledge about the "
                            "quantity; or list it under data.private_bounds: {}",
                            shown(node), kNotFromTheData));
  }
  return read_bounds(key, node, source, line, path);
}

// A map whose entries are read one by one, each complaint with the line of its entry.
template <class T>
std::map<std::string, T> read_map(const auto& key, const Yaml& node, const Source& source,
                                  std::string_view path, auto&& read_entry) {
  std::map<std::string, T> map;
  for (const auto& [name, value, line] : node.entries) {
    std::map<std::string, T> one{{name, read_entry(value, line, fmt::format("{}.{}", path, name))}};
    if (const std::string bad = complaint(key, one); !bad.empty()) {
      invalid_key(source.at(line), path, bad);
    }
    map.merge(one);
  }
  return map;
}

OverrideMap read_override_map(const Yaml& node, const Source& source, std::string_view path) {
  static const KeyTree<Override> tree = tree_of(override_keys());
  OverrideMap map;
  for (const auto& [name, value, name_line] : node.entries) {
    const std::string below = fmt::format("{}.{}", path, name);
    Override& override = map[name];
    walk_keys<Override>(
        tree, value, below, source, [&](const Key<Override>& key, const Yaml& inner, int line) {
          key.set(override,
                  read_value(key, inner, source, line, fmt::format("{}.{}", below, key.path)));
        });
  }
  return map;
}

}  // namespace

template <class Target>
KeyValue read_value(const Key<Target>& key, const Yaml& node, const Source& source, int line,
                    std::string_view path) {
  const std::string where = source.at(line);
  KeyValue value;
  const bool is_word =
      node.kind == Yaml::Kind::kScalar &&
      std::find(key.choices.begin(), key.choices.end(), node.text) != key.choices.end();
  if (node.kind == Yaml::Kind::kNull) {
    if (!key.nullable) {
      invalid_key(where, path, fmt::format("has no value; expected {}", expectation(key)));
    }
    return value;
  }
  switch (key.type) {
    case KeyType::kBool: value = read_bool(node, where, path); break;
    case KeyType::kInteger: value = read_integer(key, node, where, path); break;
    case KeyType::kNumber:
      if (is_word) {
        value = node.text;
      } else {
        value = read_number(key, node, where, path);
      }
      break;
    case KeyType::kChoice:
    case KeyType::kText:
      value = require_kind(key, node, Yaml::Kind::kScalar, where, path).text;
      break;
    case KeyType::kTextList: value = read_words(key, node, source, line, path); break;
    case KeyType::kIntegerList: {
      std::vector<std::uint64_t> integers;
      for (const Yaml& item : require_kind(key, node, Yaml::Kind::kList, where, path).items) {
        integers.push_back(read_integer(key, item, source.at(item.line), path));
      }
      value = std::move(integers);
      break;
    }
    case KeyType::kBounds: value = read_bounds(key, node, source, line, path); break;
    case KeyType::kNumberMap:
      value = read_map<double>(key, require_kind(key, node, Yaml::Kind::kMap, where, path), source,
                               path, [&](const Yaml& entry, int at, const std::string& name) {
                                 return read_number(key, entry, source.at(at), name);
                               });
      break;
    case KeyType::kBoundsMap:
      value = read_map<std::vector<double>>(
          key, require_kind(key, node, Yaml::Kind::kMap, where, path), source, path,
          [&](const Yaml& entry, int at, const std::string& name) {
            return read_column_bounds(key, entry, source, at, name);
          });
      break;
    case KeyType::kWordsMap:
      value = read_map<std::vector<std::string>>(
          key, require_kind(key, node, Yaml::Kind::kMap, where, path), source, path,
          [&](const Yaml& entry, int at, const std::string& name) {
            return read_words(key, entry, source, at, name);
          });
      break;
    case KeyType::kSpellingsMap:
      value = read_map<std::map<std::string, std::string>>(
          key, require_kind(key, node, Yaml::Kind::kMap, where, path), source, path,
          [&](const Yaml& entry, int at, const std::string& name) {
            return read_spellings(key, entry, source, at, name);
          });
      break;
    case KeyType::kOverrideMap:
      value =
          read_override_map(require_kind(key, node, Yaml::Kind::kMap, where, path), source, path);
      break;
  }
  if (const std::string bad = complaint(key, value); !bad.empty()) invalid_key(where, path, bad);
  return value;
}

// The section below `tree` that has the key, where a person left out the way to it.
template <class Target>
std::optional<std::string> section_of(const KeyTree<Target>& tree, std::string_view component) {
  for (const KeyTree<Target>& child : tree.children) {
    if (child.child(component) != nullptr) return child.name;
    if (const auto below = section_of(child, component)) return child.name + "." + *below;
  }
  return std::nullopt;
}

template <class Target>
void walk_keys(const KeyTree<Target>& tree, const Yaml& node, const std::string& path,
               const Source& source,
               const std::function<void(const Key<Target>&, const Yaml&, int)>& take) {
  if (node.kind == Yaml::Kind::kNull) return;
  if (node.kind != Yaml::Kind::kMap) {
    invalid_key(source.at(node.line), path.empty() ? "the configuration" : path,
                fmt::format("is {}; expected a mapping of keys", shown(node)));
  }
  for (const auto& [component, value, line] : node.entries) {
    const std::string below = path.empty() ? component : fmt::format("{}.{}", path, component);
    const KeyTree<Target>* child = tree.child(component);
    if (child == nullptr) {
      std::vector<std::string> known;
      for (const KeyTree<Target>& each : tree.children) known.push_back(each.name);
      const auto meant = nearest(component, known);
      const std::size_t dot = component.find('.');
      std::string hint = fmt::format("the keys here are {}", fmt::join(known, ", "));
      if (const auto section = section_of(tree, component)) {
        hint = fmt::format("write it below {}:", *section);
      }
      if (meant) hint = fmt::format("did you mean {}?", *meant);
      if (dot != std::string::npos && tree.child(component.substr(0, dot)) != nullptr) {
        hint = fmt::format("write it nested, {} below {}:", component.substr(dot + 1),
                           component.substr(0, dot));
      }
      if (const std::string reason = not_offered(below); !reason.empty()) hint = reason;
      invalid_key(source.at(line), below, fmt::format("is an unknown key; {}", hint));
    }
    if (child->key != nullptr) {
      take(*child->key, value, line);
    } else {
      walk_keys<Target>(*child, value, below, source, take);
    }
  }
}

template KeyValue read_value(const Key<Config>&, const Yaml&, const Source&, int, std::string_view);
template KeyValue read_value(const Key<Override>&, const Yaml&, const Source&, int,
                             std::string_view);
template void walk_keys(const KeyTree<Config>&, const Yaml&, const std::string&, const Source&,
                        const std::function<void(const Key<Config>&, const Yaml&, int)>&);
template void walk_keys(const KeyTree<Override>&, const Yaml&, const std::string&, const Source&,
                        const std::function<void(const Key<Override>&, const Yaml&, int)>&);

}  // namespace discreet
