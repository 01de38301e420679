#include "discreet/base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "discreet/base/error.h"

namespace discreet {
namespace {

TEST(Json, SortsKeysByTheirBytesAndUsesNoSpaces) {
  EXPECT_EQ(to_json(cbor::map({{"b", 1}, {"aa", true}, {"a", nullptr}, {"é", -2}})),
            "{\"a\":null,\"aa\":true,\"b\":1,\"é\":-2}");
  EXPECT_EQ(to_json(cbor::array({})), "[]");
  EXPECT_EQ(to_json(cbor::map({{"x", cbor::array({1, "y", Bytes{0xab, 1}})}})),
            "{\"x\":[1,\"y\",\"ab01\"]}");
}

TEST(Json, WritesTheShortestNumberThatReadsBack) {
  EXPECT_EQ(to_json(0.1), "0.1");
  EXPECT_EQ(to_json(1.0), "1.0");
  EXPECT_EQ(to_json(-0.0), "-0.0");
  EXPECT_EQ(to_json(1e300), "1e+300");
  EXPECT_EQ(to_json(5e-324), "5e-324");
  EXPECT_EQ(to_json(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  std::mt19937_64 random(1);
  for (int i = 0; i < 10000; ++i) {
    const double x =
        std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 1800) - 950);
    EXPECT_EQ(std::strtod(to_json(x).c_str(), nullptr), x);
  }
}

TEST(Json, EscapesWhatWouldBreakALine) {
  EXPECT_EQ(to_json("a\"b\\c\nd\x01"), "\"a\\\"b\\\\c\\nd\\u0001\"");
}

TEST(Json, RefusesWhatItCannotHold) {
  EXPECT_THROW(to_json(std::nan("")), Error);
  EXPECT_THROW(to_json(std::numeric_limits<double>::infinity()), Error);
  EXPECT_THROW(to_json(cbor::map({{1, 2}})), Error);
  EXPECT_THROW(to_json(cbor::tag(1, 2)), Error);
}

}  // namespace
}  // namespace discreet
