#include "discreet/base/cbor.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

#include "discreet/base/error.h"

namespace discreet::cbor {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string hex(const Value& value) { return to_hex(encode(value)); }

// The sentence of the error that `call` throws, or "" if it throws none.
template <class Call>
std::string refusal(ErrorCode code, Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.sentence();
  }
  return "";
}

TEST(Cbor, AgreesWithThePublishedEncodings) {
  std::ifstream file(DISCREET_TEST_DATA "/cbor.txt");
  ASSERT_TRUE(file) << DISCREET_TEST_DATA "/cbor.txt is missing";
  int accepted = 0;
  int refused = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string verdict, digits, note;
    words >> verdict >> digits >> std::ws;
    std::getline(words, note);
    const Bytes bytes = digits == "-" ? Bytes{} : from_hex(digits);
    SCOPED_TRACE(line);
    if (verdict == "accept") {
      EXPECT_EQ(hex(decode(bytes)), digits);
      ++accepted;
    } else {
      ASSERT_EQ(verdict, "refuse");
      const std::string sentence = refusal(ErrorCode::kMalformed, [&] { decode(bytes); });
      EXPECT_NE(sentence.find(note), std::string::npos) << sentence;
      ++refused;
    }
  }
  EXPECT_GE(accepted, 70);
  EXPECT_GE(refused, 70);
}

TEST(Cbor, EncodesIntegersOfEverySizeShortest) {
  EXPECT_EQ(hex(0), "00");
  EXPECT_EQ(hex(23), "17");
  EXPECT_EQ(hex(24u), "1818");
  EXPECT_EQ(hex(std::uint8_t{255}), "18ff");
  EXPECT_EQ(hex(256), "190100");
  EXPECT_EQ(hex(65536L), "1a00010000");
  EXPECT_EQ(hex(std::uint64_t{1} << 32), "1b0000000100000000");
  EXPECT_EQ(hex(std::numeric_limits<std::uint64_t>::max()), "1bffffffffffffffff");
  EXPECT_EQ(hex(-1), "20");
  EXPECT_EQ(hex(std::int8_t{-128}), "387f");
  EXPECT_EQ(hex(std::numeric_limits<std::int64_t>::min()), "3b7fffffffffffffff");
  EXPECT_EQ(hex(negative(std::numeric_limits<std::uint64_t>::max())), "3bffffffffffffffff");
}

TEST(Cbor, EncodesFloatsInTheShortestExactForm) {
  EXPECT_EQ(hex(0.0), "f90000");
  EXPECT_EQ(hex(-0.0), "f98000");
  EXPECT_EQ(hex(1.0f), "f93c00");
  EXPECT_EQ(hex(65504.0), "f97bff");
  EXPECT_EQ(hex(65505.0), "fa477fe100");
  EXPECT_EQ(hex(65536.0), "fa47800000");
  EXPECT_EQ(hex(0x1p-24), "f90001");
  EXPECT_EQ(hex(0x1p-25), "fa33000000");
  EXPECT_EQ(hex(0x1.ff8p-15), "f903ff");
  EXPECT_EQ(hex(0x1p-14), "f90400");
  EXPECT_EQ(hex(0x1p-149), "fa00000001");
  EXPECT_EQ(hex(0x1p-150), "fb3690000000000000");
  EXPECT_EQ(hex(0x1.fffffep127), "fa7f7fffff");
  EXPECT_EQ(hex(0x1.ffffffp127), "fb47effffff0000000");
  EXPECT_EQ(hex(1.1), "fb3ff199999999999a");
  EXPECT_EQ(hex(-kInfinity), "f9fc00");
}

TEST(Cbor, KeepsTheBitsOfEveryBinary16AndTheSignOfZero) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const Bytes bytes{0xf9, static_cast<std::uint8_t>(bits >> 8), static_cast<std::uint8_t>(bits)};
    const bool nan = (bits & 0x7fff) > 0x7c00;
    if (nan && bits != 0x7e00) {
      EXPECT_THROW(decode(bytes), Error) << bits;
    } else {
      EXPECT_EQ(encode(decode(bytes)), bytes);
    }
  }
  EXPECT_TRUE(std::signbit(decode(encode(-0.0)).as_float()));
  EXPECT_NE(Value(0.0), Value(-0.0));
}

TEST(Cbor, HasOneNan) {
  EXPECT_EQ(hex(kNan), "f97e00");
  EXPECT_EQ(hex(-kNan), "f97e00");
  EXPECT_EQ(Value(kNan), Value(-kNan));
  EXPECT_TRUE(std::isnan(decode(from_hex("f97e00")).as_float()));
}

TEST(Cbor, EncodesTextBytesAndSimpleValues) {
  EXPECT_EQ(hex(""), "60");
  EXPECT_EQ(hex("水"), "63e6b0b4");
  EXPECT_EQ(hex(std::string("IETF")), "6449455446");
  EXPECT_EQ(hex(Bytes{1, 2, 3, 4}), "4401020304");
  EXPECT_EQ(hex(std::array<std::uint8_t, 2>{7, 8}), "420708") << "a digest goes in as it is";
  EXPECT_EQ(hex(true), "f5");
  EXPECT_EQ(hex(false), "f4");
  EXPECT_EQ(hex(nullptr), "f6");
  EXPECT_EQ(hex(Value()), "f6");
  EXPECT_EQ(hex(tag(18, array({Bytes{}, map({}), nullptr}))), "d28340a0f6");
}

TEST(Cbor, SortsMapsByTheBytesOfTheirKeys) {
  // The example of RFC 8949, section 4.2.1.
  const Value value = map({{false, 8},
                           {array({-1}), 7},
                           {array({100}), 6},
                           {"aa", 5},
                           {"z", 4},
                           {-1, 3},
                           {100, 2},
                           {10, 1}});
  EXPECT_EQ(hex(value),
            "a80a01186402200361"
            "7a0462616105"
            "811864068120"
            "07f408");
  EXPECT_EQ(decode(encode(value)), value);
}

TEST(Cbor, OrdersValuesAsTheirEncodings) {
  std::vector<Value> values{0,
                            23,
                            24,
                            255,
                            256,
                            -1,
                            -24,
                            -25,
                            Bytes{},
                            Bytes{0},
                            Bytes{255},
                            Bytes{0, 0},
                            "",
                            "a",
                            "b",
                            "aa",
                            true,
                            false,
                            nullptr,
                            0.0,
                            -0.0,
                            1.0,
                            1.1,
                            65505.0,
                            kNan,
                            kInfinity,
                            array({}),
                            array({1}),
                            array({2}),
                            array({1, 2}),
                            array({"a", 1}),
                            map({}),
                            map({{1, 2}}),
                            map({{1, 3}}),
                            map({{2, 1}}),
                            tag(1, 0),
                            tag(1, 1),
                            tag(2, 0)};
  for (const Value& a : values) {
    for (const Value& b : values) EXPECT_EQ(a <=> b, encode(a) <=> encode(b)) << hex(a) << hex(b);
  }
}

TEST(Cbor, ReadsAsEasilyAsItWrites) {
  const Value state = decode(encode(map({{"name", "rdp"},
                                         {"steps", 1000},
                                         {"offset", -7},
                                         {"sigma", 0.5},
                                         {"done", false},
                                         {"key", Bytes{1, 2}},
                                         {"orders", array({2, 64})},
                                         {395, nullptr},
                                         {-1, tag(18, "inside")}})));
  EXPECT_EQ(state.at("name").as_text(), "rdp");
  EXPECT_EQ(state.at("steps").as_unsigned(), 1000u);
  EXPECT_EQ(state.at("steps").as_int64(), 1000);
  EXPECT_EQ(state.at("offset").as_int64(), -7);
  EXPECT_EQ(state.at("sigma").as_float(), 0.5);
  EXPECT_FALSE(state.at("done").as_bool());
  EXPECT_EQ(to_hex(state.at("key").as_bytes()), "0102");
  EXPECT_EQ(state.at("orders").as_array().size(), 2u);
  EXPECT_TRUE(state.at(395).is_null());
  EXPECT_EQ(state.at(-1).tag_number(), 18u);
  EXPECT_EQ(state.at(-1).tag_content().as_text(), "inside");
  EXPECT_EQ(state.find("absent"), nullptr);
  std::uint64_t found = 0;
  for (const auto& [key, value] : state.as_map()) found += state.find(key) == &value;
  EXPECT_EQ(found, 9u);
}

TEST(Cbor, SaysWhatItExpectedAndWhatItFound) {
  const auto said = [](auto call) { return refusal(ErrorCode::kInvalidInput, call); };
  EXPECT_EQ(said([] { Value("x").as_unsigned(); }), "expected an unsigned integer, found text");
  EXPECT_EQ(said([] { Value(1).as_float(); }), "expected a float, found an unsigned integer");
  EXPECT_EQ(said([] { Value(1.0).as_int64(); }), "expected an integer, found a float");
  EXPECT_EQ(said([] { Value(-1).as_unsigned(); }),
            "expected an unsigned integer, found a negative integer");
  EXPECT_EQ(said([] { Value(~0ull).as_int64(); }),
            "expected a 64-bit integer, found an unsigned integer outside its range");
  EXPECT_EQ(said([] { negative(1ull << 63).as_int64(); }),
            "expected a 64-bit integer, found a negative integer outside its range");
  EXPECT_EQ(said([] { array({}).at("x"); }), "expected a map, found an array");
  EXPECT_EQ(said([] { map({{1, 2}}).at("steps"); }), "the map has no key \"steps\"");
  EXPECT_EQ(said([] { map({}).at(-1); }), "the map has no key 0x20");
}

TEST(Cbor, RefusesToBuildWhatHasNoEncoding) {
  const auto said = [](auto call) { return refusal(ErrorCode::kInvalidInput, call); };
  EXPECT_EQ(said([] {
              map({{"a", 1}, {"b", 2}, {"a", 3}});
            }),
            "the key \"a\" occurs twice; keep one of them");
  EXPECT_NE(said([] { Value("ab\xff"); }).find("position 2"), std::string::npos);
}

TEST(Cbor, BoundsTheDepthOfWhatItBuildsAndReads) {
  Value value;
  for (int i = 0; i < kMaxDepth; ++i) {
    value = i % 3 == 0 ? array({value}) : i % 3 == 1 ? tag(1, value) : map({{value, 1}});
  }
  EXPECT_EQ(decode(encode(value)), value);
  EXPECT_NE(refusal(ErrorCode::kInvalidInput, [&] { array({value}); }).find("64 levels"),
            std::string::npos);
  EXPECT_NE(refusal(ErrorCode::kInvalidInput, [&] { tag(1, value); }), "");
  EXPECT_NE(refusal(ErrorCode::kInvalidInput, [&] { map({{1, value}}); }), "");

  for (const std::uint8_t opener : {0x81, 0xc1, 0xa1}) {
    const Bytes deep(1'000'000, opener);
    const std::string sentence = refusal(ErrorCode::kMalformed, [&] { decode(deep); });
    EXPECT_NE(sentence.find("byte 64: nested deeper"), std::string::npos) << sentence;
  }
}

TEST(Cbor, BoundsTheSizeBeforeReadingAnything) {
  const Bytes one{0};
  const ByteView claimed(one.data(), kMaxSize + 1);  // never read beyond its first byte
  EXPECT_NE(refusal(ErrorCode::kMalformed, [&] { decode(claimed); }), "");
}

TEST(Cbor, BoundsTheNumberOfValuesBothWays) {
  Bytes bytes = from_hex("9a003fffff");  // an array of kMaxItems - 1
  bytes.resize(bytes.size() + kMaxItems - 1, 0xf6);
  EXPECT_EQ(decode(bytes).as_array().size(), kMaxItems - 1);
  bytes = from_hex("9a00400000");
  bytes.resize(bytes.size() + kMaxItems, 0xf6);
  EXPECT_NE(refusal(ErrorCode::kMalformed, [&] { decode(bytes); }), "");
  EXPECT_NE(refusal(ErrorCode::kInvalidInput, [] { encode(array(std::vector<Value>(kMaxItems))); }),
            "");
}

TEST(Cbor, FindsWhereAnItemOfASequenceEnds) {
  const Value items[] = {
      0,
      -1000,
      1.5,
      1e300,
      true,
      nullptr,
      "",
      "text",
      Bytes(300, 7),
      array({}),
      map({{1, array({2, "x", map({{"deep", tag(9, Bytes(3))}})})}, {"long", Bytes(70000)}}),
      tag(2, tag(3, 4))};
  for (const Value& item : items) {
    const Bytes bytes = encode(item);
    Bytes sequence = bytes;
    sequence.insert(sequence.end(), {0x84, 0x04, 0x18});
    EXPECT_EQ(item_size(sequence), bytes.size());
    for (std::size_t n = 0; n < bytes.size(); n += n < 100 ? 1 : 997)
      EXPECT_EQ(item_size(ByteView(bytes).first(n)), std::nullopt) << n;
  }
  for (const char* lie : {"1c", "5f", "9f", "bf", "ff", "9bffffffffffffffff", "bb8000000000000000",
                          "5bffffffffffffffff", "9affffffff00", "db"})
    EXPECT_EQ(item_size(from_hex(lie)), std::nullopt) << lie;
  EXPECT_EQ(item_size(Bytes(100000, 0x81)), std::nullopt);
  EXPECT_EQ(item_size(Bytes(100000, 0xd8)), std::nullopt);
}

TEST(Cbor, IsNullAfterBeingMovedFrom) {
  Value value = tag(1, array({1, "two"}));
  const Value taken = std::move(value);
  EXPECT_TRUE(value.is_null());  // NOLINT(bugprone-use-after-move): the header promises it
  EXPECT_EQ(hex(taken), "c182016374776f");
  value = taken;
  EXPECT_EQ(value, taken);
  value = value.tag_content();
  EXPECT_EQ(hex(value), "82016374776f") << "a part may replace its whole";
}

}  // namespace
}  // namespace discreet::cbor
