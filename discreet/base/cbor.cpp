#include "discreet/base/cbor.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "discreet/base/error.h"
#include "discreet/base/text/utf8.h"

namespace discreet::cbor {
namespace {

int checked_depth(const char* op, int deepest_inside) {
  if (deepest_inside >= kMaxDepth) {
    invalid_input(op, "the value is nested deeper than {} levels; flatten it", kMaxDepth);
  }
  return deepest_inside + 1;
}

std::string describe_key(const Value& key) {
  if (key.type() == Type::kText) return fmt::format("\"{}\"", key.as_text());
  if (key.type() == Type::kUnsigned) return fmt::format("{}", key.as_unsigned());
  return "0x" + to_hex(encode(key));
}

}  // namespace

std::string_view to_string(Type type) noexcept {
  switch (type) {
    case Type::kUnsigned: return "an unsigned integer";
    case Type::kNegative: return "a negative integer";
    case Type::kBytes: return "bytes";
    case Type::kText: return "text";
    case Type::kArray: return "an array";
    case Type::kMap: return "a map";
    case Type::kTag: return "a tag";
    case Type::kBool: return "a truth value";
    case Type::kNull: return "null";
    case Type::kFloat: return "a float";
  }
  return "an unknown type";
}

// --- Building ---------------------------------------------------------------------------------

Value::Value(Type type, std::uint64_t scalar, Content content, int depth) noexcept
    : type_(type),
      depth_(static_cast<std::uint8_t>(depth)),
      scalar_(scalar),
      content_(std::move(content)) {}

Value::Value() noexcept = default;
Value::Value(std::nullptr_t) noexcept {}
Value::Value(Bytes bytes) noexcept : Value(Type::kBytes, 0, std::move(bytes), 0) {}
// The variant's own copy is not used: if it throws, libstdc++ 12 destroys the alternative that it
// did not finish, because it assumes that such a variant is never valueless.
Value::Value(const Value& other)
    : type_(other.type_), depth_(other.depth_), scalar_(other.scalar_) {
  const auto copy = [&](const auto& from) {
    auto made = from;
    content_ = std::move(made);
  };
  std::visit(copy, other.content_);
}
Value::Value(Value&& other) noexcept
    : type_(std::exchange(other.type_, Type::kNull)),
      depth_(std::exchange(other.depth_, 0)),
      scalar_(std::exchange(other.scalar_, 0)),
      content_(std::exchange(other.content_, std::monostate())) {}
Value& Value::operator=(Value other) noexcept {
  type_ = other.type_;
  depth_ = other.depth_;
  scalar_ = other.scalar_;
  content_.swap(other.content_);
  return *this;
}
Value::~Value() = default;

Value Value::from_text(std::string_view text) {
  const ByteView bytes = bytes_of(text);
  if (const auto bad = find_bad_utf8(bytes)) {
    invalid_input("cbor::Value", "the text is not UTF-8 at position {}; pass bytes instead", *bad);
  }
  return {Type::kText, 0, Bytes(bytes.begin(), bytes.end()), 0};
}

Value negative(std::uint64_t n) noexcept { return {Type::kNegative, n, {}, 0}; }

Value array(std::vector<Value> items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max<int>(deepest, item.depth_);
  const int depth = checked_depth("cbor::array", deepest);
  return {Type::kArray, 0, std::move(items), depth};
}

Value map(std::vector<Entry> entries) {
  int deepest = 0;
  for (const Entry& entry : entries) {
    deepest = std::max<int>({deepest, entry.key.depth_, entry.value.depth_});
  }
  const int depth = checked_depth("cbor::map", deepest);
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.key < b.key; });
  const auto twice =
      std::adjacent_find(entries.begin(), entries.end(),
                         [](const Entry& a, const Entry& b) { return a.key == b.key; });
  if (twice != entries.end()) {
    invalid_input("cbor::map", "the key {} occurs twice; keep one of them",
                  describe_key(twice->key));
  }
  return {Type::kMap, 0, std::move(entries), depth};
}

Value tag(std::uint64_t number, Value content) {
  const int depth = checked_depth("cbor::tag", content.depth_);
  std::vector<Value> items;
  items.push_back(std::move(content));
  return {Type::kTag, number, std::move(items), depth};
}

// --- Reading ----------------------------------------------------------------------------------

void Value::require(Type type) const {
  if (type_ != type) {
    invalid_input("cbor::Value", "expected {}, found {}", to_string(type), to_string(type_));
  }
}

bool Value::as_bool() const {
  require(Type::kBool);
  return scalar_ != 0;
}

std::uint64_t Value::as_unsigned() const {
  require(Type::kUnsigned);
  return scalar_;
}

std::int64_t Value::as_int64() const {
  if (type_ != Type::kUnsigned && type_ != Type::kNegative) {
    invalid_input("cbor::Value", "expected an integer, found {}", to_string(type_));
  }
  if (scalar_ > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    invalid_input("cbor::Value", "expected a 64-bit integer, found {} outside its range",
                  to_string(type_));
  }
  const auto n = static_cast<std::int64_t>(scalar_);
  return type_ == Type::kNegative ? -1 - n : n;
}

double Value::as_float() const {
  require(Type::kFloat);
  return std::bit_cast<double>(scalar_);
}

std::string_view Value::as_text() const {
  require(Type::kText);
  const Bytes& text = std::get<Bytes>(content_);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

ByteView Value::as_bytes() const {
  require(Type::kBytes);
  return std::get<Bytes>(content_);
}

const std::vector<Value>& Value::as_array() const {
  require(Type::kArray);
  return std::get<std::vector<Value>>(content_);
}

const std::vector<Entry>& Value::as_map() const {
  require(Type::kMap);
  return std::get<std::vector<Entry>>(content_);
}

std::uint64_t Value::tag_number() const {
  require(Type::kTag);
  return scalar_;
}

const Value& Value::tag_content() const {
  require(Type::kTag);
  return std::get<std::vector<Value>>(content_).front();
}

const Value* Value::find(const Value& key) const {
  const std::vector<Entry>& entries = as_map();
  const auto entry =
      std::lower_bound(entries.begin(), entries.end(), key,
                       [](const Entry& e, const Value& wanted) { return e.key < wanted; });
  return entry != entries.end() && entry->key == key ? &entry->value : nullptr;
}

const Value& Value::at(const Value& key) const {
  if (const Value* value = find(key)) return *value;
  invalid_input("cbor::Value", "the map has no key {}", describe_key(key));
}

}  // namespace discreet::cbor
