#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "discreet/base/bytes.h"

namespace discreet {

// The position of the first byte that is not part of a well-formed UTF-8 character; empty if there
// is none. Well-formed follows the Unicode standard, table 3-7: no over-long forms, no surrogates,
// nothing beyond U+10FFFF, no truncated character.
std::optional<std::size_t> find_bad_utf8(ByteView text) noexcept;

// Text from an untrusted source for use in an error sentence: one line in single quotes, cut after
// at most 80 bytes at a character boundary and marked with "...". Control characters become spaces
// and bytes that are not UTF-8 become question marks, so the text cannot control a terminal.
std::string excerpt(std::string_view text);

}  // namespace discreet
