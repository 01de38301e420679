#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "discreet/base/bytes.h"

// Deterministic CBOR (RFC 8949, section 4.2.1): each value has exactly one encoding, so the bytes
// of a value can be hashed, signed and compared.
//
//   const cbor::Value state = cbor::map({{"steps", 1000}, {"orders", cbor::array({2, 3.5, 64})}});
//   const Bytes bytes = cbor::encode(state);
//   cbor::decode(bytes).at("steps").as_unsigned();  // 1000
//
// The profile, where the RFC leaves a choice:
//   integers   −2⁶⁴ … 2⁶⁴−1. An integer and a float are different values, also when equal: 1 ≠ 1.0.
//   floats     the shortest of binary16, binary32 and binary64 that holds the value exactly. −0 is
//              kept apart from 0, because a restored state must have the bits of the saved one.
//              Every NaN becomes the one NaN f97e00. What is signed uses scaled integers instead.
//   text       well-formed UTF-8 (no surrogates, nothing over-long); not normalised.
//   maps       any value may be a key; entries in bytewise order of the encoded keys, none twice.
//   tags       any number, kept as they are: a bignum (tag 2) is a tag around bytes here.
//   simple     false, true and null. `undefined` and the unassigned simple values are refused.
//
// Bounds on every value and every input, so that bytes from a stranger cost at most memory in
// proportion to their number, and a short stack:
namespace discreet::cbor {

inline constexpr int kMaxDepth = 64;  // arrays, maps and tags inside each other
inline constexpr std::size_t kMaxSize = std::size_t{1} << 30;   // bytes of an encoding
inline constexpr std::size_t kMaxItems = std::size_t{1} << 22;  // values inside one, at any depth

enum class Type : std::uint8_t {
  kUnsigned,  // 0 … 2⁶⁴−1
  kNegative,  // −2⁶⁴ … −1
  kBytes,
  kText,
  kArray,
  kMap,
  kTag,
  kBool,
  kNull,
  kFloat,
};

// "an unsigned integer", "text" and so on: as error sentences say it.
std::string_view to_string(Type type) noexcept;

struct Entry;

// One value, immutable but for assignment; always canonical and never deeper than kMaxDepth.
// Converts from what it can hold: integers, bool, floats, text, bytes and nullptr.
// Values are equal when their encodings are, and ordered as their encodings are, byte by byte.
class Value {
 public:
  Value() noexcept;  // null, as is every value that was moved from
  Value(std::nullptr_t) noexcept;
  template <std::same_as<bool> T>  // a template, so that no pointer turns into `true`
  Value(T truth) noexcept : type_(Type::kBool), scalar_(truth) {}
  template <std::integral T>
  requires(!std::same_as<T, bool> && !std::same_as<T, char>) Value(T number)
  noexcept
      : type_(number < T{0} ? Type::kNegative : Type::kUnsigned),
        scalar_(static_cast<std::uint64_t>(number < T{0} ? ~number : number)) {}
  template <std::floating_point T>
  requires(sizeof(T) <= sizeof(double)) Value(T number)
  noexcept : Value(from_double(number)) {}
  // Throws kInvalidInput if the text is not UTF-8.
  template <std::convertible_to<std::string_view> T>
  Value(const T& text) : Value(from_text(text)) {}
  Value(Bytes bytes) noexcept;
  template <std::convertible_to<ByteView> T>
  Value(const T& bytes) : Value(from_bytes(bytes)) {}

  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(Value other) noexcept;
  ~Value();

  Type type() const noexcept { return type_; }
  bool is_null() const noexcept { return type_ == Type::kNull; }

  // What the value holds. Each throws kInvalidInput, naming the expected and the found type, if
  // the value holds something else or its number does not fit. Views live as long as the value.
  bool as_bool() const;
  std::uint64_t as_unsigned() const;
  std::int64_t as_int64() const;  // an integer of either sign
  double as_float() const;        // a float only: an integer is not one
  std::string_view as_text() const;
  ByteView as_bytes() const;
  const std::vector<Value>& as_array() const;
  const std::vector<Entry>& as_map() const;  // in canonical order
  std::uint64_t tag_number() const;
  const Value& tag_content() const;

  // The value of a map's entry: `state.at("steps")`, `header.find(1)`.
  // Both throw kInvalidInput if this is no map; `at` also if the key is absent, naming it.
  const Value& at(const Value& key) const;
  const Value* find(const Value& key) const;  // null pointer if the key is absent

  friend bool operator==(const Value& a, const Value& b) noexcept { return (a <=> b) == 0; }
  friend std::strong_ordering operator<=>(const Value& a, const Value& b) noexcept;

 private:
  friend class Encoder;
  friend class Decoder;
  friend Value array(std::vector<Value> items);
  friend Value map(std::vector<Entry> entries);
  friend Value tag(std::uint64_t number, Value content);
  friend Value negative(std::uint64_t n) noexcept;

  struct Head;
  using Content = std::variant<std::monostate, Bytes, std::vector<Value>, std::vector<Entry>>;
  Value(Type type, std::uint64_t scalar, Content content, int depth) noexcept;
  static Value from_double(double number) noexcept;
  static Value from_text(std::string_view text);
  static Value from_bytes(ByteView bytes) { return Bytes(bytes.begin(), bytes.end()); }
  Head head() const noexcept;
  void require(Type type) const;

  Type type_ = Type::kNull;
  std::uint8_t depth_ = 0;    // levels of containers in it: 0 for a scalar
  std::uint64_t scalar_ = 0;  // integer argument, tag number, truth, or the bits of a binary64
  Content content_;           // bytes, text; items, a tag's content; entries
};

struct Entry {
  Value key;
  Value value;
};

// Containers. `map` sorts its entries; it throws kInvalidInput if a key occurs twice, and all
// three if the result would be deeper than kMaxDepth.
Value array(std::vector<Value> items);
Value map(std::vector<Entry> entries);
Value tag(std::uint64_t number, Value content);
// −1 − n: every negative integer, also those below the range of std::int64_t.
Value negative(std::uint64_t n) noexcept;

// The one encoding of a value.
// Throws kInvalidInput if it would exceed kMaxSize or kMaxItems, so that decode takes it back.
Bytes encode(const Value& value);

// The value of which `bytes` is the one encoding: encode(decode(bytes)) == bytes.
// Throws kMalformed for anything else, with the offset: truncated or trailing bytes, long heads,
// indefinite lengths, reserved codes, unsorted or repeated keys, bad UTF-8, long floats, other
// NaNs, simple values outside the profile, and what exceeds kMaxDepth, kMaxSize or kMaxItems.
Value decode(ByteView bytes);

// How many bytes the first item of a sequence (RFC 8742) has, by its heads alone: what is inside is
// for decode() to check. None if the bytes end inside it, or a length is indefinite or reserved.
std::optional<std::size_t> item_size(ByteView sequence) noexcept;

}  // namespace discreet::cbor
