// What a run has spent for several records together.
#include <gtest/gtest.h>

#include "discreet/accounting/group_privacy.h"
#include "discreet/base/error.h"
#include "discreet/mechanism/step/apply_testing.h"

namespace discreet::mechanism {
namespace {

TEST(ApplyGroup, SpendsWhatItsEventsSpend) {
  Mechanism m = small::mechanism(small::base());
  for (int t = 0; t < 5; ++t) small::step(m);
  const double delta = m.config().privacy.target_delta;
  const auto ideal = accounting::group_epsilon(m.accountant().composed(), 4, delta).value;
  const auto found = m.group_epsilon(4, delta).value;
  EXPECT_GE(found.upper, ideal.lower);
  EXPECT_LE(found.upper, ideal.upper * 1.001);
  EXPECT_GT(found.upper, 2 * m.spent().epsilon.upper);
  EXPECT_LE(m.group_epsilon(1, delta).value.upper, m.spent().epsilon.upper * 1.001);
}

// The sampler of noise is charged at the group's epsilon: 2 * 100 steps * 24 coordinates * 2^-127
// times e^epsilon is delta near epsilon 69.
TEST(ApplyGroup, IsRejectedWhereTheNoiseSamplerLeavesOutTooMuch) {
  Mechanism m = small::mechanism(small::base());
  for (int t = 0; t < 5; ++t) small::step(m);
  const double delta = m.config().privacy.target_delta;
  EXPECT_GT(accounting::group_epsilon(m.accountant().composed(), 200, delta).value.lower, 75);
  EXPECT_THROW(m.group_epsilon(200, delta), Error);
}

}  // namespace
}  // namespace discreet::mechanism
