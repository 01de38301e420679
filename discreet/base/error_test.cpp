#include "discreet/base/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace discreet {
namespace {

TEST(Error, SaysCodeOperatorAndSentence) {
  const Error error(ErrorCode::kNanInSigma, "GenerateNoise_v1", "sigma is nan; it must be finite");
  EXPECT_EQ(error.code(), ErrorCode::kNanInSigma);
  EXPECT_EQ(error.op(), "GenerateNoise_v1");
  EXPECT_EQ(error.sentence(), "sigma is nan; it must be finite");
  EXPECT_STREQ(error.what(), "NAN_IN_SIGMA: GenerateNoise_v1: sigma is nan; it must be finite");
}

TEST(Error, HelpersThrowTheirCodeWithTheFormattedSentence) {
  const auto thrown = [](auto&& act) {
    try {
      act();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const std::string op = "plan";
  EXPECT_EQ(thrown([&] { invalid_input(op, "{} of {:.1f}", "a", 0.5); }),
            "INVALID_INPUT: plan: a of 0.5");
  EXPECT_EQ(thrown([] { invalid_config("plan", "{{}}"); }), "INVALID_DP_CONFIG: plan: {}");
  EXPECT_EQ(thrown([] { invalid_gradient("plan", "x"); }), "INVALID_GRADIENT: plan: x");
  EXPECT_EQ(thrown([] { malformed("plan", "x"); }), "MALFORMED: plan: x");
  EXPECT_EQ(thrown([] { io_error("plan", "x"); }), "IO_ERROR: plan: x");
  EXPECT_EQ(thrown([] { budget_exceeded("plan", "x"); }), "PRIVACY_BUDGET_EXCEEDED: plan: x");
  EXPECT_EQ(thrown([] { fail(ErrorCode::kNanInSigma, "plan", "{}", 1); }), "NAN_IN_SIGMA: plan: 1");
}

TEST(Error, SpellsTheSevenCodesOfTheSpecification) {
  std::set<std::string> spelled;
  for (int i = 0; i < 7; ++i) spelled.emplace(to_string(static_cast<ErrorCode>(i)));
  EXPECT_EQ(spelled,
            (std::set<std::string>{"PRIVACY_BUDGET_EXCEEDED", "INVALID_GRADIENT", "NAN_IN_SIGMA",
                                   "ACCOUNTANT_OVERFLOW", "ACCOUNTANT_DIVERGENCE",
                                   "RNG_CONSUMPTION_VIOLATION", "INVALID_DP_CONFIG"}));
}

TEST(Error, IsOneLineWhateverItQuotes) {
  const Error error(ErrorCode::kInvalidInput, "a\nb", "the key 'x\ny\x1b[2J\xff' is unknown");
  EXPECT_EQ(error.op(), "a\\u000ab");
  EXPECT_EQ(error.sentence(), "the key 'x\\u000ay\\u001b[2J\\ufffd' is unknown");
  EXPECT_STREQ(error.what(), ("INVALID_INPUT: a\\u000ab: " + error.sentence()).c_str());
}

}  // namespace
}  // namespace discreet
