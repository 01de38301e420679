#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/base/error.h"
#include "discreet/base/json_read_impl.h"

// JSON that people write: requests and scopes.
namespace discreet::release {

// A name from outside, so that it cannot break a line.
inline std::string quoted(const std::string& name) {
  using nlohmann::json;
  return json(name).dump(-1, ' ', true, json::error_handler_t::replace);
}

// Throws kInvalidInput for a text that is no JSON, has more than a mebibyte, or a name twice in one
// object: nlohmann's parser would keep the last, and which one was meant must not be open.
inline nlohmann::json parse_strictly(std::string_view text, const char* what) {
  using nlohmann::json;
  const auto refuse = [&](const std::string& sentence) {
    throw Error(ErrorCode::kInvalidInput, what, std::string("the ") + what + sentence);
  };
  if (text.size() > (std::size_t{1} << 20)) refuse(" has more than a mebibyte");
  std::vector<std::set<std::string>> names;
  const auto once = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key &&
        !names.back().insert(value.get_ref<const std::string&>()).second)
      refuse(" has the name " + quoted(value.get_ref<const std::string&>()) + " twice");
    return true;
  };
  json read = try_read_json(text, once);
  if (read.is_discarded()) refuse(" is no JSON");
  return read;
}

}  // namespace discreet::release
