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
//   integers   −2⁶⁴ … 2⁶⁴−1. An integer and a float are different values even if equal: 1 ≠ 1.0.
//   floats     the shortest of binary16, binary32 and binary64 that holds the value exactly. −0 is
//              distinct from 0, because a restored state must have the bits of the saved one.
//              Every NaN becomes the NaN f97e00. Signed documents use scaled integers instead.
//   text       well-formed UTF-8 (no surrogates, no over-long forms); not normalised.
//   maps       any value may be a key; entries in bytewise order of the encoded keys, no
//              duplicates.
//   tags       any number, preserved: a bignum (tag 2) is a tag around bytes here.
//   simple     false, true and null. `undefined` and unassigned simple values are rejected.
//
// The bounds below hold for every value and every input. They limit the cost of untrusted bytes to
// memory proportional to their number, and a short stack.
namespace discreet::cbor {

inline constexpr int kMaxDepth = 64;                            // nesting of arrays, maps and tags
inline constexpr std::size_t kMaxSize = std::size_t{1} << 30;   // bytes of an encoding
inline constexpr std::size_t kMaxItems = std::size_t{1} << 22;  // values in one, at any depth

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

// The name of a type in error sentences: "an unsigned integer", "text" and so on.
std::string_view to_string(Type type) noexcept;

struct Entry;

// One value: canonical, at most kMaxDepth deep, and immutable except for assignment. It converts
// from every type it can hold: integers, bool, floats, text, bytes and nullptr. Two values are
// equal if their encodings are equal, and are ordered by their encodings, byte by byte.
class Value {
 public:
  Value() noexcept;  // null; a moved-from value is null too
  Value(std::nullptr_t) noexcept;
  template <std::same_as<bool> T>  // a template, so that no pointer converts to `true`
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

  // The content of the value. Each function throws kInvalidInput, naming the expected and the found
  // type, if the value has another type or the number is out of range. Views are valid as long as
  // the value.
  bool as_bool() const;
  std::uint64_t as_unsigned() const;
  std::int64_t as_int64() const;  // an integer of either sign
  double as_float() const;        // a float only; rejects an integer
  std::string_view as_text() const;
  ByteView as_bytes() const;
  const std::vector<Value>& as_array() const;
  const std::vector<Entry>& as_map() const;  // in canonical order
  std::uint64_t tag_number() const;
  const Value& tag_content() const;

  // Look up an entry of a map: `state.at("steps")`, `header.find(1)`. Both throw kInvalidInput if
  // this value is not a map; `at` also throws it, naming the key, if the key is absent.
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
  std::uint8_t depth_ = 0;    // levels of nested containers; 0 for a scalar
  std::uint64_t scalar_ = 0;  // integer argument, tag number, truth, or the bits of a binary64
  Content content_;           // bytes, text; items, a tag's content; entries
};

struct Entry {
  Value key;
  Value value;
};

// Create containers. All three throw kInvalidInput if the result would be deeper than kMaxDepth.
// `map` sorts its entries and throws kInvalidInput if a key occurs twice.
Value array(std::vector<Value> items);
Value map(std::vector<Entry> entries);
Value tag(std::uint64_t number, Value content);
// −1 − n: every negative integer, including those below the range of std::int64_t.
Value negative(std::uint64_t n) noexcept;

// The only valid encoding of a value. Throws kInvalidInput if it would exceed kMaxSize or
// kMaxItems, so decode accepts every result.
Bytes encode(const Value& value);

// The value whose only valid encoding is `bytes`: encode(decode(bytes)) == bytes. Throws
// kMalformed, with the offset, for anything else: truncated or trailing bytes, heads that are not
// the shortest, indefinite lengths, reserved codes, unsorted or repeated keys, invalid UTF-8,
// floats that are not the shortest, other NaNs, simple values outside the profile, and anything
// that exceeds kMaxDepth, kMaxSize or kMaxItems.
Value decode(ByteView bytes);

// The length in bytes of the first item of a sequence (RFC 8742), read from the heads alone;
// decode() checks the content. Empty if the bytes end inside the item, or if a length is indefinite
// or reserved.
std::optional<std::size_t> item_size(ByteView sequence) noexcept;

}  // namespace discreet::cbor
