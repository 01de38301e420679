#include "discreet/base/text/utf8.h"

#include <gtest/gtest.h>

namespace discreet {
namespace {

bool good(ByteView text) { return !find_bad_utf8(text).has_value(); }

TEST(Utf8, AcceptsExactlyTheWellFormedStringsOfThreeBytes) {
  // 128 characters take one byte, 1920 two, 61440 three (2¹⁶ − 2¹¹ less 2048 surrogates).
  int count = 0;
  for (unsigned i = 0; i < 1u << 24; ++i) {
    const std::uint8_t text[3] = {static_cast<std::uint8_t>(i >> 16),
                                  static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)};
    count += good(text);
  }
  EXPECT_EQ(count, 128 * 128 * 128 + 2 * 128 * 1920 + 61440);
}

TEST(Utf8, AcceptsExactlyTheSixteenHigherPlanes) {
  // The first two bytes of a character of four fix 2¹² code points of 2²⁰: 256 pairs.
  int count = 0;
  for (int first = 0xf0; first < 0x100; ++first) {
    for (int second = 0; second < 0x100; ++second) {
      for (const std::uint8_t third : {0x00, 0x7f, 0x80, 0xbf, 0xc0, 0xff}) {
        for (const std::uint8_t fourth : {0x00, 0x7f, 0x80, 0xbf, 0xc0, 0xff}) {
          const std::uint8_t text[4] = {static_cast<std::uint8_t>(first),
                                        static_cast<std::uint8_t>(second), third, fourth};
          count += good(text);
        }
      }
    }
  }
  EXPECT_EQ(count, 256 * 2 * 2);
}

TEST(Utf8, SaysWhereTheTextGoesWrong) {
  EXPECT_EQ(find_bad_utf8(bytes_of("")), std::nullopt);
  EXPECT_EQ(find_bad_utf8(bytes_of("ab\xff")), 2u);
  EXPECT_EQ(find_bad_utf8(bytes_of("水\xed\xa0\x80")), 3u);
  EXPECT_EQ(find_bad_utf8(bytes_of("a\xf0\x90\x85")), 1u) << "cut short";
}

TEST(Excerpt, IsOneQuotedLineOfWholeCharactersThatCommandNoTerminal) {
  EXPECT_EQ(excerpt(""), "''");
  EXPECT_EQ(excerpt("plain 水"), "'plain 水'");
  EXPECT_EQ(excerpt("two\nlines\r\x1b[31m\x7f"), "'two lines  [31m '");
  EXPECT_EQ(excerpt("a\u009b31m"), "'a 31m'") << "CSI as one character";
  EXPECT_EQ(excerpt("a\xffz\xc2"), "'a?z?'");
  EXPECT_EQ(excerpt(std::string(80, 'x')), "'" + std::string(80, 'x') + "'");
  EXPECT_EQ(excerpt(std::string(81, 'x')), "'" + std::string(80, 'x') + "...'");
  for (std::size_t lead = 76; lead <= 80; ++lead)
    EXPECT_EQ(find_bad_utf8(bytes_of(excerpt(std::string(lead, 'x') + "\U0001F512\U0001F512"))),
              std::nullopt)
        << lead;
}

}  // namespace
}  // namespace discreet
