#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/base/text/utf8.h"

namespace discreet::cbor {
namespace {

constexpr std::uint64_t kCanonicalNan = 0x7ff8000000000000;

// The bits of `number` as binary16, if that is exact. Not for NaN.
std::optional<std::uint64_t> to_binary16(double number) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(number);
  const std::uint64_t sign = bits >> 63 << 15;
  const double magnitude = std::bit_cast<double>(bits << 1 >> 1);
  if (magnitude == std::numeric_limits<double>::infinity()) return sign | 0x7c00;
  if (magnitude > 65504) return std::nullopt;
  if (magnitude < 0x1p-14) {
    const double mantissa = magnitude * 0x1p24;
    const auto whole = static_cast<std::uint64_t>(mantissa);
    if (static_cast<double>(whole) != mantissa) return std::nullopt;
    return sign | whole;
  }
  const std::uint64_t low_bits = (std::uint64_t{1} << 42) - 1;
  if ((bits & low_bits) != 0) return std::nullopt;
  return sign | (((bits << 1 >> 43) - (std::uint64_t{1023 - 15} << 10)));
}

double from_binary16(std::uint64_t bits) noexcept {
  const std::uint64_t sign = bits >> 15 << 63;
  const std::uint64_t magnitude = bits & 0x7fff;
  const double value =
      magnitude < 0x0400    ? static_cast<double>(magnitude) * 0x1p-24
      : magnitude == 0x7c00 ? std::numeric_limits<double>::infinity()
      : magnitude > 0x7c00
          ? std::numeric_limits<double>::quiet_NaN()
          : std::bit_cast<double>((magnitude << 42) + (std::uint64_t{1023 - 15} << 52));
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) | sign);
}

// The bits of `number` as binary32, if that is exact. Not for NaN.
std::optional<std::uint64_t> to_binary32(double number) noexcept {
  constexpr double kLargest = std::numeric_limits<float>::max();
  const bool finite = number - number == 0;
  if (finite && (number > kLargest || number < -kLargest)) return std::nullopt;
  const auto narrow = static_cast<float>(number);
  if (static_cast<double>(narrow) != number) return std::nullopt;
  return std::bit_cast<std::uint32_t>(narrow);
}

}  // namespace

Value Value::from_double(double number) noexcept {
  const bool nan = number != number;
  return {Type::kFloat, nan ? kCanonicalNan : std::bit_cast<std::uint64_t>(number), {}, 0};
}

// The start of an encoding: the initial byte, and an argument of `width` big-endian bytes.
struct Value::Head {
  std::uint8_t initial;
  std::uint8_t width;
  std::uint64_t argument;

  // The shortest head of major type 0 to 6.
  static Head shortest(Type major, std::uint64_t argument) noexcept {
    const auto with = [&](std::uint64_t info, std::uint8_t bytes) {
      return Head{static_cast<std::uint8_t>(static_cast<unsigned>(major) << 5 | info), bytes,
                  argument};
    };
    if (argument < 24) return with(argument, 0);
    if (argument <= 0xff) return with(24, 1);
    if (argument <= 0xffff) return with(25, 2);
    if (argument <= 0xffffffff) return with(26, 4);
    return with(27, 8);
  }

  static Head of_float(std::uint64_t bits) noexcept {
    if (bits == kCanonicalNan) return {0xf9, 2, 0x7e00};
    const auto number = std::bit_cast<double>(bits);
    if (const auto half = to_binary16(number)) return {0xf9, 2, *half};
    if (const auto single = to_binary32(number)) return {0xfa, 4, *single};
    return {0xfb, 8, bits};
  }
};

Value::Head Value::head() const noexcept {
  switch (type_) {
    case Type::kBytes:
    case Type::kText: return Head::shortest(type_, std::get<Bytes>(content_).size());
    case Type::kArray: return Head::shortest(type_, std::get<std::vector<Value>>(content_).size());
    case Type::kMap: return Head::shortest(type_, std::get<std::vector<Entry>>(content_).size());
    case Type::kBool: return {static_cast<std::uint8_t>(0xf4 + scalar_), 0, 0};
    case Type::kNull: return {0xf6, 0, 0};
    case Type::kFloat: return Head::of_float(scalar_);
    default: return Head::shortest(type_, scalar_);
  }
}

// Encodings are prefix-free and their heads shortest, so comparing initial byte, argument and
// content in turn is comparing the encoded bytes.
std::strong_ordering operator<=>(const Value& a, const Value& b) noexcept {
  const Value::Head head_a = a.head();
  const Value::Head head_b = b.head();
  if (const auto order = head_a.initial <=> head_b.initial; order != 0) return order;
  if (const auto order = head_a.argument <=> head_b.argument; order != 0) return order;
  if (const auto* bytes = std::get_if<Bytes>(&a.content_)) {
    return *bytes <=> std::get<Bytes>(b.content_);
  }
  if (const auto* items = std::get_if<std::vector<Value>>(&a.content_)) {
    return *items <=> std::get<std::vector<Value>>(b.content_);
  }
  if (const auto* entries = std::get_if<std::vector<Entry>>(&a.content_)) {
    const auto& others = std::get<std::vector<Entry>>(b.content_);
    for (std::size_t i = 0; i < entries->size(); ++i) {
      if (const auto order = (*entries)[i].key <=> others[i].key; order != 0) return order;
      if (const auto order = (*entries)[i].value <=> others[i].value; order != 0) return order;
    }
  }
  return std::strong_ordering::equal;
}

class Encoder {
 public:
  void put(const Value& value) {
    if (++items_ > kMaxItems) {
      invalid_input(
          "cbor::encode",
          "the value contains more than {} values; store numbers that belong together as bytes",
          kMaxItems);
    }
    const Value::Head head = value.head();
    require_room(1 + head.width);
    bytes_.push_back(head.initial);
    for (int shift = 8 * (head.width - 1); shift >= 0; shift -= 8) {
      bytes_.push_back(static_cast<std::uint8_t>(head.argument >> shift));
    }
    if (const auto* bytes = std::get_if<Bytes>(&value.content_)) {
      require_room(bytes->size());
      bytes_.insert(bytes_.end(), bytes->begin(), bytes->end());
    } else if (const auto* items = std::get_if<std::vector<Value>>(&value.content_)) {
      for (const Value& item : *items) put(item);
    } else if (const auto* entries = std::get_if<std::vector<Entry>>(&value.content_)) {
      for (const auto& [key, content] : *entries) {
        put(key);
        put(content);
      }
    }
  }

  Bytes take() { return std::move(bytes_); }

 private:
  void require_room(std::size_t count) const {
    if (count > kMaxSize - bytes_.size()) {
      invalid_input("cbor::encode", "the encoding exceeds {} bytes; split it", kMaxSize);
    }
  }

  Bytes bytes_;
  std::size_t items_ = 0;
};

Bytes encode(const Value& value) {
  Encoder encoder;
  encoder.put(value);
  return encoder.take();
}

class Decoder {
 public:
  explicit Decoder(ByteView bytes) : bytes_(bytes) {
    if (bytes.size() > kMaxSize) {
      malformed("cbor::decode", "found {} bytes; at most {} are allowed", bytes.size(), kMaxSize);
    }
  }

  Value document() {
    Value value = item(0);
    if (at_ != bytes_.size()) {
      fail(at_, fmt::format("{} bytes follow the value", bytes_.size() - at_));
    }
    return value;
  }

 private:
  [[noreturn]] static void fail(std::size_t offset, std::string_view what) {
    malformed("cbor::decode", "not canonical at byte {}: {}", offset, what);
  }

  std::size_t remaining() const noexcept { return bytes_.size() - at_; }

  std::uint64_t big_endian(std::size_t width, std::size_t start) {
    if (remaining() < width) fail(start, "the input ends inside a head");
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < width; ++i) number = number << 8 | bytes_[at_++];
    return number;
  }

  // Every item takes at least one byte, so a count above the number of remaining bytes is false.
  std::size_t count(std::uint64_t argument, std::size_t bytes_each, std::size_t start) const {
    if (argument > remaining() / bytes_each) {
      fail(start,
           fmt::format("it announces {} elements and {} bytes remain", argument, remaining()));
    }
    return argument;
  }

  Value item(int depth) {
    const std::size_t start = at_;
    if (remaining() == 0) fail(start, "the input ends where a value should begin");
    if (++items_ > kMaxItems) fail(start, fmt::format("more than {} values", kMaxItems));
    const std::uint8_t initial = bytes_[at_++];
    const auto major = static_cast<Type>(initial >> 5);
    const unsigned info = initial & 31;
    if (info > 27) fail(start, info == 31 ? "indefinite length or break" : "reserved head");
    const std::uint64_t argument =
        info < 24 ? info : big_endian(std::size_t{1} << (info - 24), start);
    if (initial >> 5 == 7) return simple_or_float(info, argument, start);
    if (Value::Head::shortest(major, argument).initial != initial) {
      fail(start, "the head is longer than needed");
    }
    if (depth >= kMaxDepth && major >= Type::kArray) {
      fail(start, fmt::format("nested deeper than {} levels", kMaxDepth));
    }
    switch (major) {
      case Type::kBytes: return string(argument, start);
      case Type::kText: return text(argument, start);
      case Type::kArray: return array(count(argument, 1, start), depth);
      case Type::kMap: return map(count(argument, 2, start), depth);
      case Type::kTag: return tag(argument, item(depth + 1));
      default: return {major, argument, {}, 0};
    }
  }

  Bytes string(std::uint64_t size, std::size_t start) {
    const ByteView piece = bytes_.subspan(at_, count(size, 1, start));
    at_ += piece.size();
    return {piece.begin(), piece.end()};
  }

  Value text(std::uint64_t size, std::size_t start) {
    const std::size_t content = at_;
    Bytes bytes = string(size, start);
    if (const auto bad = find_bad_utf8(bytes)) fail(content + *bad, "the text is not UTF-8");
    return {Type::kText, 0, std::move(bytes), 0};
  }

  // No memory is reserved from a declared count: nested false counts would multiply.
  Value array(std::size_t size, int depth) {
    std::vector<Value> items;
    for (std::size_t i = 0; i < size; ++i) items.push_back(item(depth + 1));
    return cbor::array(std::move(items));
  }

  Value map(std::size_t size, int depth) {
    std::vector<Entry> entries;
    ByteView previous;
    int deepest = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t start = at_;
      Value key = item(depth + 1);
      const ByteView encoded = bytes_.subspan(start, at_ - start);
      if (i > 0 && !std::lexicographical_compare(previous.begin(), previous.end(), encoded.begin(),
                                                 encoded.end())) {
        fail(start, std::equal(previous.begin(), previous.end(), encoded.begin(), encoded.end())
                        ? "the key occurs twice"
                        : "the keys are not in bytewise order");
      }
      previous = encoded;
      Value value = item(depth + 1);
      deepest = std::max<int>({deepest, key.depth_, value.depth_});
      entries.push_back({std::move(key), std::move(value)});
    }
    return {Type::kMap, 0, std::move(entries), deepest + 1};
  }

  static Value simple_or_float(unsigned info, std::uint64_t argument, std::size_t start) {
    switch (info) {
      case 20: return false;
      case 21: return true;
      case 22: return nullptr;
      case 25: return shortest_float(from_binary16(argument), info, argument, start);
      case 26: {
        const auto number = std::bit_cast<float>(static_cast<std::uint32_t>(argument));
        return shortest_float(number, info, argument, start);
      }
      case 27: return shortest_float(std::bit_cast<double>(argument), info, argument, start);
      default:
        if (info == 24 && argument < 32) fail(start, "a simple value below 32 takes one byte");
        fail(start, fmt::format("simple value {} is none of false, true, null", argument));
    }
  }

  static Value shortest_float(double number, unsigned info, std::uint64_t argument,
                              std::size_t start) {
    Value value(number);
    const Value::Head head = value.head();
    if (head.initial != (0xe0 | info) || head.argument != argument) {
      fail(start, number != number ? "NaN other than f97e00" : "the float is longer than needed");
    }
    return value;
  }

  ByteView bytes_;
  std::size_t at_ = 0;
  std::size_t items_ = 0;
};

Value decode(ByteView bytes) { return Decoder(bytes).document(); }

std::optional<std::size_t> item_size(ByteView sequence) noexcept {
  std::size_t at = 0;
  // Every pending item takes a byte at least, so this never overflows.
  for (std::size_t pending = 1; pending != 0; --pending) {
    if (at == sequence.size()) return std::nullopt;
    const std::uint8_t initial = sequence[at++];
    const unsigned info = initial & 31;
    if (info > 27) return std::nullopt;
    const std::size_t width = info < 24 ? 0 : std::size_t{1} << (info - 24);
    if (sequence.size() - at < width) return std::nullopt;
    std::uint64_t argument = width == 0 ? info : 0;
    for (std::size_t i = 0; i < width; ++i) argument = argument << 8 | sequence[at++];
    const std::size_t left = sequence.size() - at;
    switch (initial >> 5) {
      case 2:
      case 3:
        if (argument > left) return std::nullopt;
        at += argument;
        break;
      case 4:
      case 5:
        if (argument > left) return std::nullopt;
        pending += argument << (initial >> 5 == 5 ? 1 : 0);
        break;
      case 6: ++pending; break;
      default: break;
    }
    if (pending - 1 > sequence.size() - at) return std::nullopt;
  }
  return at;
}

}  // namespace discreet::cbor
