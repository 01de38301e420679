#pragma once

#include <gtest/gtest.h>

#include <cstdio>

#include "hwy/highway.h"

// Only for tests.
namespace discreet::numerics {

// Runs f once for every vector target that is compiled in and supported by this processor.
template <class F>
void for_each_target(F f) {
  int seen = 0;
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    std::printf("%s ", hwy::TargetName(target));
    f();
    ++seen;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  std::printf("\n");
  EXPECT_GE(seen, 1);
}

}  // namespace discreet::numerics
