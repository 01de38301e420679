#include "discreet/base/text/utf8.h"

namespace discreet {
namespace {

// The number of bytes of the well-formed UTF-8 character that `text` starts with, or 0.
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

std::string excerpt(std::string_view text) {
  constexpr std::size_t kMost = 80;
  const bool cut = text.size() > kMost;
  std::string out(text.substr(0, kMost));
  while (const auto bad = find_bad_utf8(bytes_of(out))) {
    if (cut && *bad + 4 > kMost)
      out.resize(*bad);
    else
      out[*bad] = '?';
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto c = static_cast<unsigned char>(out[i]);
    const bool upper = c == 0xc2 && static_cast<unsigned char>(out[i + 1]) < 0xa0;  // U+0080 to 9f
    if (upper) out.erase(i + 1, 1);
    if (upper || c < 0x20 || c == 0x7f) out[i] = ' ';
  }
  return "'" + out + (cut ? "...'" : "'");
}

}  // namespace discreet
