#include "discreet/base/text/printable.h"

#include "discreet/base/text/utf8.h"

namespace discreet {

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const auto escape = [&](unsigned code) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += kDigits[code >> shift & 15];
  };
  for (std::size_t i = 0, bad = find_bad_utf8(bytes_of(text)).value_or(text.size());
       i < text.size();) {
    if (i == bad) {
      escape(0xfffd);
      ++i;
      bad = i + find_bad_utf8(bytes_of(text.substr(i))).value_or(text.size() - i);
      continue;
    }
    const auto at = [&](std::size_t k) { return static_cast<unsigned char>(text[i + k]); };
    const std::size_t length = at(0) < 0x80 ? 1 : at(0) < 0xe0 ? 2 : at(0) < 0xf0 ? 3 : 4;
    unsigned code = at(0);
    if (length == 2) code = (at(0) & 0x1fu) << 6 | (at(1) & 0x3fu);
    if (length == 3) code = (at(0) & 0x0fu) << 12 | (at(1) & 0x3fu) << 6 | (at(2) & 0x3fu);
    const bool commands = code < 0x20 || (code >= 0x7f && code < 0xa0);
    const bool turns = code == 0x061c || code == 0x200e || code == 0x200f ||
                       (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    if (length < 4 && (commands || turns))
      escape(code);
    else
      out += text.substr(i, length);
    i += length;
  }
  return out;
}

}  // namespace discreet
