#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "discreet/base/text/nearest.h"
#include "discreet/base/text/utf8.h"
#include "discreet/config/config_table.h"

namespace discreet {
namespace {

std::string limit(double x) {
  if (x == 0x1p20) return "2^20";
  if (x == 0x1p32) return "2^32";
  if (x == 0x1p51) return "2^51";
  if (x == 0x1p53) return "2^53";
  if (x == 0x1p64) return "2^64";
  return fmt::format("{:g}", x);
}

std::string interval(const Range& range) {
  const bool bounded = range.most < 1e300;
  return fmt::format("{}{}, {}{}", range.above ? '(' : '[', limit(range.least),
                     bounded ? limit(range.most) : "inf",
                     range.below || !bounded || range.most == 0x1p64 ? ')' : ']');
}

std::string outside(const Range& range, double number, std::string_view shown) {
  if (!std::isfinite(number)) return fmt::format("is {}; it must be finite", shown);
  if (range.holds(number)) return {};
  return fmt::format("is {}; it must be in {}", shown, interval(range));
}

std::string not_a_choice(const std::string& word, const std::vector<std::string>& choices) {
  const auto meant = nearest(word, choices);
  return fmt::format("is {}; {}it must be one of {}", excerpt(word),
                     meant ? fmt::format("did you mean {}? ", *meant) : "",
                     fmt::join(choices, ", "));
}

bool is_hex(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string bad_name(const std::string& name) {
  if (name.empty()) return "has an empty name; fill it in or remove it";
  if (name.size() > 1024) return "has a name of more than 1024 bytes; shorten it";
  return {};
}

std::string bad_names(const std::vector<std::string>& names, bool may_hold_empty = false) {
  for (const std::string& name : names) {
    if (may_hold_empty && name.empty()) continue;
    if (std::string bad = bad_name(name); !bad.empty()) return bad;
  }
  return {};
}

std::string bad_words(const std::vector<std::string>& words) {
  if (words.empty()) return "is empty; list the possible words, or \"*\" for all";
  if (std::string bad = bad_names(words); !bad.empty()) return bad;
  const std::set<std::string> distinct(words.begin(), words.end());
  return distinct.size() == words.size() ? "" : "contains a word twice; keep one of them";
}

std::string bad_spellings(const std::map<std::string, std::string>& spellings) {
  for (const auto& [from, to] : spellings) {
    if (std::string bad = bad_names({from, to}); !bad.empty()) return bad;
  }
  return {};
}

std::string bad_bounds(const std::vector<double>& bounds) {
  if (bounds.size() == 2 && std::isfinite(bounds[0]) && std::isfinite(bounds[1]) &&
      bounds[0] < bounds[1] && std::isfinite(bounds[1] - bounds[0])) {
    return {};
  }
  return fmt::format("is [{}]; it must be [lower, upper], two numbers, the second larger",
                     fmt::join(bounds, ", "));
}

// "of NAME ..." with the complaint about the first entry of a map that has one.
template <class Map, class F>
std::string bad_entry(const Map& map, F&& complain) {
  for (const auto& [name, value] : map) {
    if (std::string bad = bad_name(name); !bad.empty()) return bad;
    if (const std::string bad = complain(value); !bad.empty()) {
      return fmt::format("of {} {}", name, bad);
    }
  }
  return {};
}

}  // namespace

std::string write_number(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".n") != std::string::npos) return text;  // of inf and nan: n
  const std::size_t exponent = text.find('e');
  return text.insert(std::min(exponent, text.size()), ".0");
}

template <class Target>
std::string complaint(const Key<Target>& key, const KeyValue& value) {
  if (std::holds_alternative<std::monostate>(value)) {
    return key.nullable ? "" : fmt::format("is null; expected {}", expectation(key));
  }
  if (const auto* integer = std::get_if<std::uint64_t>(&value)) {
    return outside(key.range, static_cast<double>(*integer), fmt::format("{}", *integer));
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return outside(key.range, *number, fmt::format("{}", *number));
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (key.type == KeyType::kText) {
      if (key.digits != 0 && (text->size() != key.digits || !is_hex(*text))) {
        return fmt::format("is {}; give {}", excerpt(*text), expectation(key));
      }
      if (text->empty() || text->size() > 1024) return "must have 1 to 1024 bytes";
    } else if (std::find(key.choices.begin(), key.choices.end(), *text) == key.choices.end()) {
      return not_a_choice(*text, key.choices);
    }
  }
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    return bad_names(*list, key.may_hold_empty);
  }
  const auto out_of_range = [&](auto number) {
    return outside(key.range, static_cast<double>(number), fmt::format("{}", number));
  };
  if (const auto* list = std::get_if<std::vector<std::uint64_t>>(&value)) {
    for (const std::uint64_t integer : *list) {
      if (const std::string bad = out_of_range(integer); !bad.empty())
        return "has an entry that " + bad;
    }
  }
  if (const auto* bounds = std::get_if<std::vector<double>>(&value)) {
    return bounds->empty() ? "" : bad_bounds(*bounds);
  }
  if (const auto* map = std::get_if<NumberMap>(&value)) return bad_entry(*map, out_of_range);
  if (const auto* map = std::get_if<BoundsMap>(&value)) return bad_entry(*map, bad_bounds);
  if (const auto* map = std::get_if<WordsMap>(&value)) return bad_entry(*map, bad_words);
  if (const auto* map = std::get_if<SpellingsMap>(&value)) return bad_entry(*map, bad_spellings);
  if (const auto* map = std::get_if<OverrideMap>(&value)) {
    for (const auto& [name, override] : *map) {
      if (std::string bad = bad_name(name); !bad.empty()) return bad;
      for (const Key<Override>& inner : override_keys()) {
        if (std::string bad = complaint(inner, inner.get(override)); !bad.empty()) {
          return fmt::format("of {}: {} {}", name, inner.path, bad);
        }
      }
    }
  }
  return {};
}

template <class Target>
std::string expectation(const Key<Target>& key) {
  switch (key.type) {
    case KeyType::kBool: return "true or false";
    case KeyType::kInteger: return fmt::format("an integer in {}", interval(key.range));
    case KeyType::kNumber:
      return fmt::format("a number in {}{}", interval(key.range),
                         key.choices.empty() ? "" : " or " + key.choices.front());
    case KeyType::kChoice: return fmt::format("one of {}", fmt::join(key.choices, ", "));
    case KeyType::kText:
      return key.digits == 0 ? "text" : fmt::format("{} lower-case hexadecimal digits", key.digits);
    case KeyType::kTextList: return "a list of names";
    case KeyType::kIntegerList: return fmt::format("a list of integers in {}", interval(key.range));
    case KeyType::kBounds: return "[lower, upper]";
    case KeyType::kBoundsMap: return "a mapping of names to [lower, upper]";
    case KeyType::kWordsMap: return "a mapping of names to lists of words";
    case KeyType::kSpellingsMap: return "a mapping of names to mappings of words to words";
    case KeyType::kNumberMap:
      return fmt::format("a mapping of names to numbers in {}", interval(key.range));
    case KeyType::kOverrideMap:
      return "a mapping of names to {clip_norm, sigma_multiplier, public}";
  }
  return {};
}

template <class Target>
const KeyTree<Target>* KeyTree<Target>::child(std::string_view component) const {
  const auto found = std::find_if(children.begin(), children.end(),
                                  [&](const KeyTree& each) { return each.name == component; });
  return found == children.end() ? nullptr : &*found;
}

template <class Target>
KeyTree<Target> tree_of(const std::vector<Key<Target>>& keys) {
  KeyTree<Target> root;
  for (const Key<Target>& key : keys) {
    KeyTree<Target>* at = &root;
    std::string_view rest = key.path;
    while (!rest.empty()) {
      const std::string_view component = rest.substr(0, rest.find('.'));
      rest.remove_prefix(std::min(rest.size(), component.size() + 1));
      if (at->child(component) == nullptr) at->children.push_back({std::string(component)});
      at = const_cast<KeyTree<Target>*>(at->child(component));
    }
    at->key = &key;
  }
  return root;
}

template std::string complaint(const Key<Config>&, const KeyValue&);
template std::string complaint(const Key<Override>&, const KeyValue&);
template std::string expectation(const Key<Config>&);
template std::string expectation(const Key<Override>&);
template struct KeyTree<Config>;
template struct KeyTree<Override>;
template KeyTree<Config> tree_of(const std::vector<Key<Config>>&);
template KeyTree<Override> tree_of(const std::vector<Key<Override>>&);

}  // namespace discreet
