#pragma once

#include <string>
#include <string_view>

namespace discreet {

// A text that came from outside, as it may be printed: on one line, in whole. Control characters
// (U+0000 to 1F, U+007F to 9F), line and paragraph separators and marks that turn the direction of
// writing are written as \u and four hexadecimal digits, and bytes that are not UTF-8 as \ufffd.
// JSON without line breaks stays the same JSON.
std::string printable(std::string_view text);

}  // namespace discreet
