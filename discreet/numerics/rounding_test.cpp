#include "discreet/numerics/rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace discreet::numerics {
namespace {

TEST(Rounding, StepsToTheNeighbour) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    const double x = std::bit_cast<double>(random());
    if (x != x) continue;
    EXPECT_EQ(next_up(x), std::nextafter(x, inf));
    EXPECT_EQ(next_down(x), std::nextafter(x, -inf));
  }
  for (const double x : {0.0, -0.0, 0x1p-1074, -0x1p-1074, inf, -inf, 1.0, -1.0}) {
    EXPECT_EQ(next_up(x), std::nextafter(x, inf));
    EXPECT_EQ(next_down(x), std::nextafter(x, -inf));
  }
  EXPECT_TRUE(std::isnan(next_up(std::nan(""))));
}

TEST(Rounding, CoversTheUlpsOfTheExactValueAcrossAPowerOfTwo) {
  // 1 - 2^-53 may stand for 1 + 2^-52 - tiny: within one ulp of the exact value.
  EXPECT_GE(round_up(1 - 0x1p-53, 1), 1 + 0x1p-52 - 0x1p-53);
  EXPECT_LE(round_down(1.0, 1), 1 - 0x1p-53);
  EXPECT_EQ(round_up(1.0, 0), 1.0);
  EXPECT_LT(round_down(std::numeric_limits<double>::infinity(), 1),
            std::numeric_limits<double>::infinity());
  EXPECT_LE(round_down(0.0, 1), -0x1p-1074);
}

}  // namespace
}  // namespace discreet::numerics
