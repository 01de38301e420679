#include "discreet/base/bytes.h"

#include <algorithm>

#include "discreet/base/error.h"

namespace discreet {
namespace {

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int digit_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string to_hex(ByteView bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

Bytes from_hex(std::string_view hex) {
  if (hex.size() % 2 != 0) {
    malformed("from_hex", "found {} hexadecimal digits; expected an even number", hex.size());
  }
  Bytes bytes;
  bytes.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit_value(hex[i]);
    const int low = digit_value(hex[i + 1]);
    if (high < 0 || low < 0) {
      malformed("from_hex", "the character at position {} is not a hexadecimal digit",
                high < 0 ? i : i + 1);
    }
    bytes.push_back(static_cast<std::uint8_t>(high * 16 + low));
  }
  return bytes;
}

std::string to_base64(ByteView bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < n ? bytes[i + k] : 0);
    for (std::size_t k = 0; k < 4; ++k)
      text.push_back(k <= n ? kBase64[bits >> (18 - 6 * k) & 63] : '=');
  }
  return text;
}

Bytes from_base64(std::string_view text) {
  Bytes bytes;
  bytes.reserve(text.size() / 4 * 3);
  const std::size_t padding =
      text.ends_with("==") ? 2 : static_cast<std::size_t>(text.ends_with("="));
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i + padding < text.size(); ++i) {
    const std::size_t value = kBase64.find(text[i]);
    if (value == std::string_view::npos)
      malformed("from_base64", "the character at position {} is not in the base64 alphabet", i);
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if (i % 4 != 0) bytes.push_back(static_cast<std::uint8_t>(bits >> (6 - 2 * (i % 4))));
  }
  if (text.size() % 4 != 0 || to_base64(bytes) != text)
    malformed("from_base64",
              "the text is not base64 with padding, or has non-zero bits after its last byte");
  return bytes;
}

}  // namespace discreet
