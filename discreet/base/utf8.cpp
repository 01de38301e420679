#include "discreet/base/utf8.h"

namespace discreet {
namespace {

// The number of bytes of the well-formed UTF-8 character that `text` begins with, or 0.
// Only the second byte's range depends on the first.
std::size_t utf8_length(ByteView text) noexcept {
  const std::uint8_t first = text[0];
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() < length) return 0;
  const std::uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const std::uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (text[1] < low || text[1] > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::optional<std::size_t> find_bad_utf8(ByteView text) noexcept {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text.subspan(i));
    if (length == 0) return i;
    i += length;
  }
  return std::nullopt;
}

}  // namespace discreet
