#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "discreet/base/bytes.h"

namespace discreet {

// The position of the first byte that does not belong to a well-formed UTF-8 character, if any.
// Well-formed is the Unicode standard, table 3-7: nothing over-long, no surrogates, nothing beyond
// U+10FFFF, no character cut short.
std::optional<std::size_t> find_bad_utf8(ByteView text) noexcept;

// A text that came from outside, as the sentence of an error shows it: on one line, between single
// quotes, at most 80 bytes and then "..." in whole characters; control characters are spaces and
// bytes that are no UTF-8 question marks, so that nothing of it commands a terminal.
std::string excerpt(std::string_view text);

}  // namespace discreet
