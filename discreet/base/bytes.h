#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace discreet {

using Bytes = std::vector<std::uint8_t>;
using ByteView = std::span<const std::uint8_t>;  // borrowed: must not outlive its owner

// The bytes of a text, without copying. The view borrows from `text`.
inline ByteView bytes_of(std::string_view text) noexcept {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// Lower-case hexadecimal, two digits a byte, no prefix.
std::string to_hex(ByteView bytes);

// The inverse of to_hex; accepts upper case too. Throws kMalformed for an odd length, and for a
// character that is not a hexadecimal digit, naming its position.
Bytes from_hex(std::string_view hex);

// Base64 (RFC 4648, section 4) with padding, no line breaks.
std::string to_base64(ByteView bytes);

// The inverse of to_base64. Each byte string has exactly one accepted text. Throws kMalformed for
// any other text: foreign characters, missing padding, non-zero bits after the last byte.
Bytes from_base64(std::string_view text);

}  // namespace discreet
