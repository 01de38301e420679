#include "discreet/admission/anchor_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "discreet/base/error.h"
#include "discreet/base/json_read_impl.h"

namespace discreet::admission {
namespace {

constexpr const char* kOperator = "input";

nlohmann::json read_line(std::string_view line, const std::string& path, int number) {
  nlohmann::json object;
  try {
    object = try_read_json(line, unique_names());
  } catch (const Error& error) {
    invalid_input(kOperator, "{}:{}: {}", path, number, error.sentence());
  }
  if (!object.is_object())
    invalid_input(kOperator, "{}:{}: the line is not a JSON object", path, number);
  return object;
}

// Calls take(number, object) for every line that is not empty.
template <class F>
void each_line(std::string_view text, const std::string& path, F take) {
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \r\t") == std::string::npos) continue;
    take(number, read_line(line, path, number));
  }
}

Bytes hex_member(const nlohmann::json& object, const char* name, bool needed,
                 const std::string& where) {
  const auto at = object.find(name);
  if (at == object.end() || at->is_null()) {
    if (!needed) return {};
    invalid_input(kOperator, "{}: \"{}\" is missing", where, name);
  }
  if (!at->is_string()) invalid_input(kOperator, "{}: \"{}\" is not a text", where, name);
  try {
    return from_hex(at->get<std::string>());
  } catch (const Error& error) {
    invalid_input(kOperator, "{}: \"{}\": {}", where, name, error.sentence());
  }
}

}  // namespace

std::vector<Anchored> parse_anchors(std::string_view text, const std::string& name) {
  std::vector<Anchored> out;
  each_line(text, name, [&](int line, const nlohmann::json& object) {
    const std::string where = fmt::format("{}:{}", name, line);
    out.push_back({line,
                   {hex_member(object, "descriptor", true, where),
                    hex_member(object, "attestation", false, where)}});
  });
  return out;
}

Statements parse_statements(std::string_view text, const std::string& name) {
  std::vector<Bytes> all;
  each_line(text, name, [&](int line, const nlohmann::json& object) {
    all.push_back(hex_member(object, "statement", true, fmt::format("{}:{}", name, line)));
  });
  return decode_statements(all);
}

std::set<Digest> parse_hashes(std::string_view text, const std::string& name) {
  std::set<Digest> out;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty()) continue;
    Digest digest{};
    const auto is_digit = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    };
    if (line.size() != 2 * digest.size() || !std::ranges::all_of(line, is_digit))
      invalid_input(kOperator, "{}:{}: the line is not a descriptor hash", name, number);
    std::ranges::copy(from_hex(line), digest.begin());
    out.insert(digest);
  }
  return out;
}

}  // namespace discreet::admission
