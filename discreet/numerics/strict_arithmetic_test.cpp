#include "discreet/numerics/strict_arithmetic.h"

#include <gtest/gtest.h>

#include <cfenv>

#include "discreet/base/error.h"

namespace discreet::numerics {
namespace {

TEST(StrictArithmetic, AcceptsRoundingToNearest) { EXPECT_NO_THROW(require_round_to_nearest()); }

TEST(StrictArithmetic, RefusesDirectedRounding) {
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    ASSERT_EQ(std::fesetround(mode), 0);
    bool refused = false;
    try {
      require_round_to_nearest();
    } catch (const Error& error) {
      refused = error.code() == ErrorCode::kInvalidInput;
    }
    std::fesetround(FE_TONEAREST);
    EXPECT_TRUE(refused) << "mode " << mode;
  }
}

}  // namespace
}  // namespace discreet::numerics
