#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "discreet/base/error.h"
#include "discreet/base/json_read_impl.h"

// JSON written by people: requests and scopes.
namespace discreet::release {

// A name from an untrusted source, escaped so that it cannot break a line.
inline std::string quoted(const std::string& name) {
  using nlohmann::json;
  return json(name).dump(-1, ' ', true, json::error_handler_t::replace);
}

// Throws kInvalidInput for a text that is not JSON, has more than one mebibyte, or has a duplicate
// name in one object.
inline nlohmann::json parse_strictly(std::string_view text, const char* what) {
  using nlohmann::json;
  const auto refuse = [&](const std::string& sentence) {
    invalid_input(what, "the {}{}", what, sentence);
  };
  if (text.size() > (std::size_t{1} << 20)) refuse(" has more than a mebibyte");
  try {
    json read = try_read_json(text, unique_names());
    if (!read.is_discarded()) return read;
  } catch (const Error& error) {
    refuse(": " + error.sentence());
  }
  refuse(" is not JSON");
  return {};
}

}  // namespace discreet::release
