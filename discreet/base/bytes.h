#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace discreet {

using Bytes = std::vector<std::uint8_t>;
using ByteView = std::span<const std::uint8_t>;  // borrowed; never outlives its owner

// The bytes of a text, without copying. The view borrows from `text`.
inline ByteView bytes_of(std::string_view text) noexcept {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// Lower-case hexadecimal, two digits a byte, no prefix.
std::string to_hex(ByteView bytes);

// The inverse of to_hex; upper case is accepted too.
// Throws kMalformed for an odd length or a character that is no hexadecimal digit, with its
// position.
Bytes from_hex(std::string_view hex);

}  // namespace discreet
