#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "discreet/base/error.h"

// The one way this project reads JSON. nlohmann's parser takes any depth, but writing, copying and
// comparing what it read recurse: a few hundred kilobytes of brackets end the process.
namespace discreet {

inline constexpr int kDeepestJson = 64;

// Whether brackets outside of strings are nested deeper than kDeepestJson, or there is a zero byte,
// at which nlohmann's parser would stop and take what came before for the whole.
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

// Throws kMalformed for JSON that is nested too deep, and nlohmann's exception for what is no JSON.
// on_event: as nlohmann's parser takes it.
inline nlohmann::json read_json(std::string_view text,
                                const nlohmann::json::parser_callback_t& on_event = nullptr) {
  if (is_unreadable(text))
    throw Error(ErrorCode::kMalformed, "JSON",
                "the JSON is nested more than 64 deep, or has a zero byte");
  return nlohmann::json::parse(text, on_event);
}

// The same without exceptions: a discarded value for either.
inline nlohmann::json try_read_json(std::string_view text,
                                    const nlohmann::json::parser_callback_t& on_event = nullptr) {
  if (is_unreadable(text)) return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, on_event, false);
}

}  // namespace discreet
