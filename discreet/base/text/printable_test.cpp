#include "discreet/base/text/printable.h"

#include <gtest/gtest.h>

#include "discreet/base/text/utf8.h"

namespace discreet {
namespace {

TEST(Printable, TextHoldsNothingThatCommandsATerminal) {
  EXPECT_EQ(printable("plain 水 ε ≤ 1 \U0001F600 \\"), "plain 水 ε ≤ 1 \U0001F600 \\");
  EXPECT_EQ(printable("a\rb\nc\td\x1b[2K\x7f"), "a\\u000db\\u000ac\\u0009d\\u001b[2K\\u007f");
  EXPECT_EQ(printable("\u009b2J \u202e \u2028 \u2066"), "\\u009b2J \\u202e \\u2028 \\u2066");
  EXPECT_EQ(printable(std::string_view("\xff\0x", 3)), "\\ufffd\\u0000x");
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; ++second) {
      const std::string text{static_cast<char>(first), static_cast<char>(second)};
      const std::string shown = printable(text);
      EXPECT_EQ(printable(shown), shown);
      EXPECT_FALSE(find_bad_utf8(bytes_of(shown)));
      for (const char c : shown) EXPECT_FALSE(static_cast<unsigned char>(c) < 0x20 || c == 0x7f);
    }
}

}  // namespace
}  // namespace discreet
