#include "discreet/base/bytes.h"

#include <gtest/gtest.h>

#include "discreet/base/error.h"

namespace discreet {
namespace {

TEST(Hex, WritesTwoLowerCaseDigitsAByte) {
  EXPECT_EQ(to_hex(Bytes{}), "");
  EXPECT_EQ(to_hex(Bytes{0x00, 0x0f, 0xa0, 0xff}), "000fa0ff");
}

TEST(Hex, ReadsBackEveryByteInEitherCase) {
  Bytes all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<std::uint8_t>(i));
  EXPECT_EQ(from_hex(to_hex(all)), all);
  EXPECT_EQ(from_hex("ABcd"), (Bytes{0xab, 0xcd}));
}

TEST(Hex, RefusesWhatIsNotHexadecimalAndSaysWhere) {
  EXPECT_THROW(from_hex("abc"), Error);
  try {
    from_hex("00g0");
    FAIL() << "accepted 'g'";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    EXPECT_NE(error.sentence().find("position 2"), std::string::npos) << error.sentence();
  }
}

}  // namespace
}  // namespace discreet
