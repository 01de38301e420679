#pragma once

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace tamper {

using nlohmann::json;
using Random = std::mt19937_64;

inline std::size_t below(Random& random, std::size_t bound) { return random() % bound; }

// Alters one place of a text: bits, cuts, repeats.
inline std::string mutated_text(std::string text, Random& random) {
  if (text.empty()) return "x";
  const std::size_t at = below(random, text.size()), end = at + 1 + below(random, text.size() - at);
  switch (below(random, 6)) {
    case 0: text[at] = static_cast<char>(text[at] ^ (1 << below(random, 7))); break;
    case 1: text.erase(at, 1 + below(random, 4)); break;
    case 2: text.insert(at, 1, "0123456789abcdef \"{}[],:\n"[below(random, 25)]); break;
    case 3: text.resize(at); break;
    case 4: text.erase(at, end - at); break;
    default: text.insert(at, text.substr(at, end - at));
  }
  return text;
}

// Alters one field of a document: drops it, doubles it, swaps it with a sibling, changes its value,
// or puts a part of the same document or of another one in its place.
inline json mutated(json document, const json& other, Random& random) {
  const auto places = [](const json& of) {
    std::vector<json::json_pointer> out;
    const json flat = of.flatten();
    for (const auto& [path, value] : flat.items()) {
      json::json_pointer at(path);
      for (; !at.empty(); at = at.parent_pointer()) out.push_back(at);
    }
    return out;
  };
  const auto here = places(document), there = places(other);
  if (here.empty()) return document;
  const json::json_pointer at = here[below(random, here.size())];
  json& parent = document[at.parent_pointer()];
  json& value = document[at];
  const auto sibling = [&]() -> json& {
    if (!parent.is_structured() || parent.size() < 2) return value;
    auto chosen = parent.begin();
    std::advance(chosen, static_cast<std::ptrdiff_t>(below(random, parent.size())));
    return *chosen;
  };
  switch (below(random, 8)) {
    case 0:
      if (parent.is_object()) {
        parent.erase(at.back());
      } else {
        parent.erase(static_cast<std::size_t>(std::stoul(at.back())));
      }
      break;
    case 1:
      if (parent.is_array()) {
        const json copy = value;
        parent.insert(
            parent.begin() + static_cast<std::ptrdiff_t>(below(random, parent.size() + 1)), copy);
      } else {
        parent[at.back() + "2"] = value;
      }
      break;
    case 2: std::swap(value, sibling()); break;
    case 3: {
      const json copy = document.at(here[below(random, here.size())]);
      document[at] = copy;
      break;
    }
    case 4: {
      const json copy = other.at(there[below(random, there.size())]);
      document[at] = copy;
      break;
    }
    case 5:
      if (other.contains(at)) document[at] = other.at(at);
      break;
    default:
      if (value.is_string()) {
        value = mutated_text(value.get<std::string>(), random);
      } else if (value.is_number_integer()) {
        const std::int64_t steps[] = {1, -1, 1000, -value.get<std::int64_t>(), 1LL << 40};
        value = value.get<std::int64_t>() + steps[below(random, 5)];
      } else if (value.is_boolean()) {
        value = !value.get<bool>();
      } else {
        value = nullptr;
      }
  }
  return document;
}

inline std::string text_of(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace tamper
