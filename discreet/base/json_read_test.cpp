#include <gtest/gtest.h>

#include <string>

#include "discreet/base/json_read_impl.h"

namespace discreet {
namespace {

std::string nested(int depth, const char* open = "[", const char* close = "]") {
  std::string out;
  for (int i = 0; i < depth; ++i) out += open;
  for (int i = 0; i < depth; ++i) out += close;
  return out;
}

TEST(ReadJson, TakesSixtyFourLevelsAndNoMore) {
  EXPECT_TRUE(read_json(nested(64)).is_array());
  for (const int depth : {65, 1'000'000}) {
    EXPECT_THROW(read_json(nested(depth)), Error);
    EXPECT_TRUE(try_read_json(nested(depth)).is_discarded());
    EXPECT_THROW(read_json(nested(depth, "{\"a\":", "}")), Error);
  }
}

TEST(ReadJson, CountsNoBracketInsideAText) {
  const std::string text = "[\"" + std::string(1000, '[') + "\\\"" + std::string(1000, '{') + "\"]";
  EXPECT_EQ(read_json(text).size(), 1u);
  EXPECT_EQ(try_read_json("[\"\\\\\"]")[0], "\\");
}

TEST(ReadJson, TakesNoNameTwiceWhereItIsAskedNotTo) {
  EXPECT_EQ(read_json(R"({"a":1,"a":2})")["a"], 2);
  for (const char* text : {R"({"a":1,"a":1})", R"([{"b":{"a":1,"\u0061":2}}])"})
    EXPECT_THROW(read_json(text, unique_names()), Error) << text;
  EXPECT_EQ(read_json(R"([{"a":1},{"a":{"a":2}}])", unique_names()).size(), 2u);
}

TEST(ReadJson, DoesNotEndAtAZeroByte) {
  const std::string text("{\"a\": 1}\0{\"b\": 2}", 18);
  EXPECT_THROW(read_json(text), Error);
  EXPECT_TRUE(try_read_json(text).is_discarded());
}

TEST(ReadJson, RefusesWhatIsNoJson) {
  for (const std::string& text : {std::string("{"), std::string("\"\xff\""), std::string()}) {
    EXPECT_THROW(read_json(text), nlohmann::json::exception);
    EXPECT_TRUE(try_read_json(text).is_discarded());
  }
}

}  // namespace
}  // namespace discreet
