#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "discreet/base/error.h"
#include "discreet/base/text/nearest.h"
#include "discreet/base/text/utf8.h"
#include "discreet/config/config_text_impl.h"

namespace discreet {
namespace {

constexpr std::size_t kColumns = 100;

bool is_word(const std::string& text) {
  constexpr std::array<std::string_view, 9> kOther = {"true", "false", "null", "yes", "no",
                                                      "on",   "off",   "y",    "n"};
  std::string lower;
  for (const char c : text) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (text.empty() || std::find(kOther.begin(), kOther.end(), lower) != kOther.end()) {
    return false;
  }
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
           return letter(c) || c == '_' || c == '-' || (c >= '0' && c <= '9');
         });
}

std::string quoted(const std::string& text) {
  if (is_word(text)) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

struct ToText {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool truth) const { return truth ? "true" : "false"; }
  std::string operator()(std::uint64_t integer) const { return fmt::format("{}", integer); }
  std::string operator()(double number) const { return write_number(number); }
  std::string operator()(const std::string& text) const { return quoted(text); }
  std::string operator()(const std::vector<std::string>& names) const {
    std::string out;
    for (const std::string& name : names) out += (out.empty() ? "" : ", ") + quoted(name);
    return '[' + out + ']';
  }
  std::string operator()(const std::vector<std::uint64_t>& integers) const {
    return fmt::format("[{}]", fmt::join(integers, ", "));
  }
  std::string operator()(const std::vector<double>& numbers) const {
    std::string out;
    for (const double number : numbers) out += (out.empty() ? "" : ", ") + write_number(number);
    return '[' + out + ']';
  }
  template <class T>
  std::string operator()(const std::map<std::string, T>& entries) const {
    std::string out;
    for (const auto& [name, value] : entries) {
      out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", quoted(name), (*this)(value));
    }
    return '{' + out + '}';
  }
  std::string operator()(const OverrideMap& overrides) const {
    std::string out;
    for (const auto& [name, said] : overrides) {
      std::string inner;
      for (const Key<Override>& key : override_keys()) {
        const KeyValue value = key.get(said);
        if (std::holds_alternative<std::monostate>(value)) continue;
        inner +=
            fmt::format("{}{}: {}", inner.empty() ? "" : ", ", key.path, std::visit(*this, value));
      }
      out += fmt::format("{}{}: {{{}}}", out.empty() ? "" : ", ", quoted(name), inner);
    }
    return '{' + out + '}';
  }
};

}  // namespace

std::string yaml_text(const KeyValue& value) { return std::visit(ToText{}, value); }

std::string yaml_comment(std::size_t indent, const std::string& text) {
  std::string out;
  std::string line(indent, ' ');
  line += '#';
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (line.size() + 1 + end - at > kColumns) {
      out += line + '\n';
      line = std::string(indent, ' ') + '#';
    }
    line += ' ' + text.substr(at, end - at);
    at = end + 1;
  }
  return out + line + '\n';
}

const Preset* find_preset(std::optional<std::string_view> name) {
  if (!name) return nullptr;
  for (const Preset& preset : presets()) {
    if (preset.name == *name) return &preset;
  }
  const std::vector<std::string> known(preset_names().begin(), preset_names().end());
  const auto meant = nearest(*name, known);
  invalid_config("config_preset", "unknown preset {}; {}the presets are {}", excerpt(*name),
                 meant ? fmt::format("did you mean {}? ", *meant) : "", fmt::join(known, ", "));
}

}  // namespace discreet
