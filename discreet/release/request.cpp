#include "discreet/release/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "discreet/base/error.h"
#include "discreet/release/strict_json_impl.h"

namespace discreet::release {
namespace {

using nlohmann::json;

constexpr const char* kOperator = "request";

void require_members(const json& object, const char* what,
                     std::initializer_list<std::string_view> known) {
  if (!object.is_object()) invalid_input(kOperator, "{} is not a JSON object", what);
  for (const auto& [key, value] : object.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      invalid_input(kOperator, "{} has the unknown member {}; the members are {}", what,
                    quoted(key), fmt::join(known, ", "));
}

std::string text_of(const json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end() || !at->is_string() || at->get_ref<const std::string&>().empty())
    invalid_input(kOperator, "{} is missing, empty or not a text", name);
  return at->get<std::string>();
}

}  // namespace

Request parse_request(std::string_view text) {
  const json read = parse_strictly(text, "request");
  require_members(read, "the request", {"generation_class", "purpose", "rights"});
  Request out;
  out.generation_class = text_of(read, "generation_class");
  out.purpose = text_of(read, "purpose");
  const auto at = read.find("rights");
  if (at == read.end())
    invalid_input(kOperator, "rights is missing; use {{}} for a query without limits");
  require_members(*at, "rights", {"classes", "most_epsilon"});
  if (const auto classes = at->find("classes"); classes != at->end()) {
    try {
      out.rights.classes = classes->get<std::vector<std::string>>();
    } catch (const json::exception&) {
      invalid_input(kOperator, "rights.classes must be a list of texts");
    }
    std::sort(out.rights.classes->begin(), out.rights.classes->end());
  }
  if (const auto most = at->find("most_epsilon"); most != at->end()) {
    const double epsilon = most->is_number() ? most->get<double>() : -1;
    if (!(epsilon >= 0 && epsilon <= 1e9))
      invalid_input(kOperator, "rights.most_epsilon must be a number in [0, 1e9]");
    out.rights.most_epsilon = static_cast<std::uint64_t>(std::floor(epsilon * 1e6));
  }
  return out;
}

}  // namespace discreet::release
