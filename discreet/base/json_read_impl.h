#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/base/error.h"

// The only JSON reader of this project. nlohmann's parser accepts any depth, but writing, copying
// and comparing the result recurse: a few hundred kilobytes of brackets would crash the process.
namespace discreet {

inline constexpr int kDeepestJson = 64;

// True if brackets outside strings are nested deeper than kDeepestJson, or if the text contains a
// zero byte. nlohmann's parser would stop at a zero byte and accept the part before it.
inline bool is_unreadable(std::string_view json) noexcept {
  if (json.find('\0') != std::string_view::npos) return true;
  int depth = 0;
  bool inside = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (inside) {
      if (c == '\\') ++i;
      inside = c != '"';
    } else if (c == '"') {
      inside = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepestJson) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

// For read_json(): throws kMalformed for a duplicate name in one object. nlohmann's parser would
// keep the last value, but the meaning of a signed text must be unambiguous.
inline nlohmann::json::parser_callback_t unique_names() {
  using nlohmann::json;
  return [names = std::vector<std::set<std::string>>()](int, json::parse_event_t event,
                                                        json& value) mutable {
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key &&
        !names.back().insert(value.get_ref<const std::string&>()).second)
      malformed("JSON", "the name {} is there twice in one object",
                value.dump(-1, ' ', true, json::error_handler_t::replace));
    return true;
  };
}

// Throws kMalformed for JSON that is nested too deep, and nlohmann's exception for text that is not
// JSON. on_event: the callback of nlohmann's parser.
inline nlohmann::json read_json(std::string_view text,
                                const nlohmann::json::parser_callback_t& on_event = nullptr) {
  if (is_unreadable(text))
    malformed("JSON", "the JSON is nested more than 64 levels deep, or contains a zero byte");
  return nlohmann::json::parse(text, on_event);
}

// The same without exceptions: returns a discarded value in both cases.
inline nlohmann::json try_read_json(std::string_view text,
                                    const nlohmann::json::parser_callback_t& on_event = nullptr) {
  if (is_unreadable(text)) return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, on_event, false);
}

}  // namespace discreet
