#include "discreet/base/bytes.h"

#include <fmt/format.h>

#include "discreet/base/error.h"

namespace discreet {
namespace {

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
    throw Error(ErrorCode::kMalformed, "from_hex",
                fmt::format("{} hexadecimal digits do not make whole bytes; give an even number",
                            hex.size()));
  }
  Bytes bytes;
  bytes.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit_value(hex[i]);
    const int low = digit_value(hex[i + 1]);
    if (high < 0 || low < 0) {
      throw Error(ErrorCode::kMalformed, "from_hex",
                  fmt::format("the character at position {} is no hexadecimal digit",
                              high < 0 ? i : i + 1));
    }
    bytes.push_back(static_cast<std::uint8_t>(high * 16 + low));
  }
  return bytes;
}

}  // namespace discreet
