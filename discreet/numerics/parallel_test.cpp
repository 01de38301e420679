#include "discreet/numerics/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace discreet::numerics {
namespace {

TEST(ParallelFor, CoversEveryElementOnceInAlignedRanges) {
  for (const std::size_t count : {1, 255, 256, 40'000, 1'000'003}) {
    for (const int threads : {-1, 1, 2, 7, 64}) {
      std::vector<int> seen(count, 0);
      std::atomic<bool> aligned = true;
      parallel_for(count, threads, [&](std::size_t begin, std::size_t end) {
        if (begin % kChunk != 0 || (end % kChunk != 0 && end != count) || begin >= end)
          aligned = false;
        for (std::size_t i = begin; i < end; ++i) ++seen[i];
      });
      EXPECT_TRUE(aligned);
      EXPECT_EQ(seen, std::vector<int>(count, 1)) << count << ", " << threads;
    }
  }
}

TEST(ParallelFor, DoesNothingForNothing) {
  parallel_for(0, 4, [](std::size_t, std::size_t) { FAIL(); });
}

TEST(ParallelFor, PassesOnTheExceptionOfTheLowestRange) {
  try {
    parallel_for(1'000'000, 4, [](std::size_t begin, std::size_t) {
      throw std::runtime_error(begin == 0 ? "first" : "later");
    });
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
}

}  // namespace
}  // namespace discreet::numerics
