#include "discreet/admission/anchor_file.h"

#include <gtest/gtest.h>

#include "discreet/base/error.h"

namespace discreet::admission {
namespace {

TEST(AnchorFile, NamesTheLineThatRepeatsAName) {
  const std::string text =
      "{\"descriptor\":\"00\"}\n{\"descriptor\":\"00\",\"descriptor\":\"01\"}\n";
  try {
    parse_anchors(text, "anchors.jsonl");
    FAIL() << "a repeated name was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    EXPECT_TRUE(error.sentence().starts_with("anchors.jsonl:2: ")) << error.sentence();
  }
}

}  // namespace
}  // namespace discreet::admission
