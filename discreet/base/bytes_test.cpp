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

TEST(Base64, MatchesTheVectorsOfRfc4648) {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, text] : vectors) {
    EXPECT_EQ(to_base64(bytes_of(plain)), text);
    const Bytes back = from_base64(text);
    EXPECT_EQ(std::string(back.begin(), back.end()), plain);
  }
}

TEST(Base64, GivesATextAtMostOneReading) {
  for (const char* text : {"Zg", "Zg=", "Zh==", "Zm9=", "Zg==\n", " Zg==", "Z===", "====", "=",
                           "Zm9v=", "Zg==Zg==", "Zm-v", "Z"})
    EXPECT_THROW(from_base64(text), Error) << text;
}

}  // namespace
}  // namespace discreet
