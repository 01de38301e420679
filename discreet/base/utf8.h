#pragma once

#include <cstddef>
#include <optional>

#include "discreet/base/bytes.h"

namespace discreet {

// The position of the first byte that does not belong to a well-formed UTF-8 character, if any.
// Well-formed is the Unicode standard, table 3-7: nothing over-long, no surrogates, nothing beyond
// U+10FFFF, no character cut short.
std::optional<std::size_t> find_bad_utf8(ByteView text) noexcept;

}  // namespace discreet
