#pragma once

#include <string>
#include <string_view>

namespace discreet {

// Text from an untrusted source in a form that is safe to print: one line, complete. Control
// characters (U+0000 to 1F, U+007F to 9F), line and paragraph separators, and characters that
// change the writing direction become \u and four hexadecimal digits; bytes that are not UTF-8
// become \ufffd. JSON without line breaks keeps its meaning.
std::string printable(std::string_view text);

}  // namespace discreet
