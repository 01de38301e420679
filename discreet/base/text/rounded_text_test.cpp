#include "discreet/base/text/rounded_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace discreet {
namespace {

TEST(RoundedText, IsNeverOnTheWrongSide) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-9, 9);
  for (int i = 0; i < 20000; ++i) {
    const double x = std::pow(10.0, exponent(random));
    ASSERT_GE(std::stod(brief_up(x)), x);
    ASSERT_LE(std::stod(brief_down(x)), x);
    ASSERT_LE(std::stod(brief_up(x)), x * (1 + 2e-4));
    ASSERT_GE(std::stod(round_up(x)), x);
    ASSERT_LE(std::stod(round_down(x)), x);
  }
}

// More digits than binary64 has: a tenth of the last digit is less than the next number is away.
TEST(RoundedText, EndsForNumbersOfAnySize) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> exponent(0, 300);
  for (int i = 0; i < 2000; ++i) {
    const double x = std::pow(10.0, exponent(random));
    ASSERT_GE(std::stod(round_up(x, 11)), x);
    ASSERT_LE(std::stod(round_down(x, 11)), x);
  }
}

TEST(RoundedText, ReadsAsAPersonWouldWriteIt) {
  EXPECT_EQ(brief_up(2.93), "2.9300");
  EXPECT_EQ(brief_up(2.930000001), "2.9301");
  EXPECT_EQ(brief_down(2.930000001), "2.9300");
  EXPECT_EQ(brief_up(0), "0");
  EXPECT_EQ(brief_up(std::numeric_limits<double>::infinity()), "infinity");
}

}  // namespace
}  // namespace discreet
