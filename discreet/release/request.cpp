#include "discreet/release/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "discreet/base/error.h"
#include "discreet/release/strict_json_impl.h"

namespace discreet::release {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(std::string sentence) {
  throw Error(ErrorCode::kInvalidInput, "request", std::move(sentence));
}

void require_members(const json& object, const char* what,
                     std::initializer_list<std::string_view> known) {
  if (!object.is_object()) refuse(fmt::format("{} is no JSON object", what));
  for (const auto& [key, value] : object.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      refuse(
          fmt::format("{} has the member {}; take {}", what, quoted(key), fmt::join(known, ", ")));
}

std::string text_of(const json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end() || !at->is_string() || at->get_ref<const std::string&>().empty())
    refuse(fmt::format("{} is missing, empty or no text", name));
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
  if (at == read.end()) refuse("rights are missing; give {} for a query without limits");
  require_members(*at, "rights", {"classes", "most_epsilon"});
  if (const auto classes = at->find("classes"); classes != at->end()) {
    try {
      out.rights.classes = classes->get<std::vector<std::string>>();
    } catch (const json::exception&) {
      refuse("rights.classes is no list of texts");
    }
    std::sort(out.rights.classes->begin(), out.rights.classes->end());
  }
  if (const auto most = at->find("most_epsilon"); most != at->end()) {
    const double epsilon = most->is_number() ? most->get<double>() : -1;
    if (!(epsilon >= 0 && epsilon <= 1e9))
      refuse("rights.most_epsilon is no number from 0 to 10^9");
    out.rights.most_epsilon = static_cast<std::uint64_t>(std::floor(epsilon * 1e6));
  }
  return out;
}

}  // namespace discreet::release
