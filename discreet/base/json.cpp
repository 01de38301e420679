#include "discreet/base/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "discreet/base/error.h"

namespace discreet {
namespace {

[[noreturn]] void cannot_write(std::string what) {
  invalid_input("to_json", "{} cannot be represented in JSON", std::move(what));
}

void append_text(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else
          out += c;
    }
  }
  out += '"';
}

void append_float(double number, std::string& out) {
  if (!std::isfinite(number)) cannot_write(fmt::format("the number {}", number));
  const std::string text = fmt::format("{}", number);
  out += text;
  if (text.find_first_of(".e") == std::string::npos) out += ".0";
}

void append(const cbor::Value& value, std::string& out);

void append_map(const cbor::Value& map, std::string& out) {
  std::vector<const cbor::Entry*> entries;
  for (const cbor::Entry& entry : map.as_map()) {
    if (entry.key.type() != cbor::Type::kText) cannot_write("a key that is not text");
    entries.push_back(&entry);
  }
  std::ranges::sort(entries, {}, [](const cbor::Entry* entry) { return entry->key.as_text(); });
  out += '{';
  for (const cbor::Entry* entry : entries) {
    if (entry != entries.front()) out += ',';
    append_text(entry->key.as_text(), out);
    out += ':';
    append(entry->value, out);
  }
  out += '}';
}

void append(const cbor::Value& value, std::string& out) {
  switch (value.type()) {
    case cbor::Type::kUnsigned: out += fmt::format("{}", value.as_unsigned()); break;
    case cbor::Type::kNegative: out += fmt::format("{}", value.as_int64()); break;
    case cbor::Type::kBytes: append_text(to_hex(value.as_bytes()), out); break;
    case cbor::Type::kText: append_text(value.as_text(), out); break;
    case cbor::Type::kArray: {
      out += '[';
      bool first = true;
      for (const cbor::Value& item : value.as_array()) {
        if (!first) out += ',';
        first = false;
        append(item, out);
      }
      out += ']';
      break;
    }
    case cbor::Type::kMap: append_map(value, out); break;
    case cbor::Type::kTag: cannot_write("a tag");
    case cbor::Type::kBool: out += value.as_bool() ? "true" : "false"; break;
    case cbor::Type::kNull: out += "null"; break;
    case cbor::Type::kFloat: append_float(value.as_float(), out); break;
  }
}

}  // namespace

std::string to_json(const cbor::Value& value) {
  std::string out;
  append(value, out);
  return out;
}

}  // namespace discreet
