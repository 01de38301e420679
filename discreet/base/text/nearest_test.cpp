#include "discreet/base/text/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace discreet {
namespace {

const std::vector<std::string> kWords = {"noise_multiplier", "target_epsilon", "target_delta",
                                         "seed", "POISSON"};

TEST(Nearest, FindsWhatWasMeant) {
  EXPECT_EQ(nearest("noise_multipler", kWords), "noise_multiplier");
  EXPECT_EQ(nearest("target_epsilno", kWords), "target_epsilon");
  EXPECT_EQ(nearest("poisson", kWords), "POISSON");
  EXPECT_EQ(nearest("sede", kWords), "seed");
}

TEST(Nearest, SuggestsNothingForAWordUnlikeAny) {
  EXPECT_EQ(nearest("banana", kWords), std::nullopt);
  EXPECT_EQ(nearest("", kWords), std::nullopt);
  EXPECT_EQ(nearest(std::string(100000, 'a'), kWords), std::nullopt);
  EXPECT_EQ(nearest("seed", {}), std::nullopt);
}

TEST(Nearest, TakesTheFirstOfEquals) {
  EXPECT_EQ(nearest("ab", std::vector<std::string>{"ax", "ay"}), "ax");
}

}  // namespace
}  // namespace discreet
