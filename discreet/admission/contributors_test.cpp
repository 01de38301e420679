#include "discreet/admission/contributors.h"

#include <gtest/gtest.h>

#include "discreet/admission/policy_testing.h"

namespace discreet::admission {
namespace {

TEST(ContributorTotals, AddWhatEachContributionIsPromised) {
  Descriptor one = testing::clinical(), two = testing::clinical(), other = testing::clinical();
  one.contributor = two.contributor = "ward";
  other.contributor = "archive";
  one.noise_multiplier = {2'000'000'000};
  two.noise_multiplier = {4'000'000'000};
  other.noise_multiplier = {1'000'000'000};
  Descriptor weaker = two;
  weaker.promise = Promise::kAmplified;
  const std::vector<Descriptor> admitted{one, other, weaker, two};
  const auto totals = contributor_totals(admitted);
  ASSERT_EQ(totals.size(), 2u);
  EXPECT_EQ(totals[0].contributor, "archive");
  EXPECT_GE(totals[0].gdp_mu, 1);
  EXPECT_EQ(totals[1].contributor, "ward");
  EXPECT_EQ(totals[1].contributions, 3u);
  EXPECT_EQ(totals[1].amplified, 1u);
  EXPECT_GE(totals[1].gdp_mu, .75);
  EXPECT_LE(totals[1].gdp_mu, .75 + 1e-15);
  EXPECT_TRUE(contributor_totals({}).empty());
}

}  // namespace
}  // namespace discreet::admission
