#include "discreet/base/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace discreet {
namespace {

TEST(Error, SaysCodeOperatorAndSentence) {
  const Error error(ErrorCode::kNanInSigma, "GenerateNoise_v1", "sigma is nan; give a finite one");
  EXPECT_EQ(error.code(), ErrorCode::kNanInSigma);
  EXPECT_EQ(error.op(), "GenerateNoise_v1");
  EXPECT_EQ(error.sentence(), "sigma is nan; give a finite one");
  EXPECT_STREQ(error.what(), "NAN_IN_SIGMA: GenerateNoise_v1: sigma is nan; give a finite one");
}

TEST(Error, SpellsTheSevenCodesOfTheSpecification) {
  std::set<std::string> spelled;
  for (int i = 0; i < 7; ++i) spelled.emplace(to_string(static_cast<ErrorCode>(i)));
  EXPECT_EQ(spelled,
            (std::set<std::string>{"PRIVACY_BUDGET_EXCEEDED", "INVALID_GRADIENT", "NAN_IN_SIGMA",
                                   "ACCOUNTANT_OVERFLOW", "ACCOUNTANT_DIVERGENCE",
                                   "RNG_CONSUMPTION_VIOLATION", "INVALID_DP_CONFIG"}));
}

}  // namespace
}  // namespace discreet
