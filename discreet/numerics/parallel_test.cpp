#include "discreet/numerics/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>

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

// The sum of f(i) = i over [0, n), by `threads` threads with a value per item.
std::size_t sum_of_items(std::size_t n, int threads) {
  std::vector<std::size_t> values(n);
  parallel_items(n, threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) values[i] = i;
  });
  return std::accumulate(values.begin(), values.end(), std::size_t{0});
}

TEST(ParallelItems, IsDoneOnSeveralThreadsAtOnce) {
  // Each waits for the other, so that one thread alone would never return; a machine too busy to
  // wake the second thread before the first has given up is not a failure, hence the deadline.
  std::atomic<int> inside = 0;
  bool met = false;
  for (int attempt = 0; attempt < 100 && !met; ++attempt) {
    inside = 0;
    parallel_items(2, 2, [&](std::size_t, std::size_t) {
      ++inside;
      const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
      while (inside < 2 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    });
    met = inside == 2;
  }
  EXPECT_TRUE(met);
}

TEST(ParallelItems, ServesManyShortCallsOfGrowingWidth) {
  for (std::size_t k = 0; k < 20'000; ++k)
    ASSERT_EQ(sum_of_items(9, 1 + static_cast<int>(k % 9)), 36u);
}

TEST(ParallelItems, MayBeCalledFromInside) {
  std::vector<std::size_t> sums(8);
  parallel_items(8, 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) sums[i] = sum_of_items(100 + i, 3);
  });
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(sums[i], (100 + i) * (99 + i) / 2);
}

TEST(ParallelItems, MayBeCalledFromSeveralThreads) {
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> callers;
    for (int c = 0; c < 4; ++c)
      callers.emplace_back([&wrong] {
        for (int k = 0; k < 2'000; ++k) wrong += sum_of_items(64, 3) != 2016 ? 1 : 0;
      });
  }
  EXPECT_EQ(wrong, 0);
}

TEST(ParallelItems, ServesOnAfterAnException) {
  for (int k = 0; k < 100; ++k) {
    EXPECT_THROW(parallel_items(4, 4,
                                [](std::size_t begin, std::size_t) {
                                  if (begin == 3) throw std::runtime_error("the last");
                                }),
                 std::runtime_error);
    EXPECT_EQ(sum_of_items(10, 4), 45u);
  }
}

TEST(ParallelItems, RoundsAsTheCallerDoes) {
  ASSERT_EQ(sum_of_items(4, 4), 6u);  // threads from a time of rounding to nearest
  std::vector<double> thirds(4);
  volatile double one = 1, three = 3;
  const auto divide = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) thirds[i] = one / three;
  };
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  for (int k = 0; k < 100; ++k) {
    parallel_items(4, 4, divide);
    if (thirds != std::vector<double>(4, 0x1.5555555555556p-2)) break;
  }
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(thirds, std::vector<double>(4, 0x1.5555555555556p-2));
  parallel_items(4, 4, divide);
  EXPECT_EQ(thirds, std::vector<double>(4, 0x1.5555555555555p-2));
}

TEST(ParallelItems, WorksInTheChildOfAFork) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer ends a forked child that starts a thread";
#endif
  ASSERT_EQ(sum_of_items(10, 4), 45u);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // a hang is a failure
    bool good = true;
    for (int k = 0; k < 1'000; ++k) good &= sum_of_items(10, 4) == 45;
    _exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(sum_of_items(10, 4), 45u);
}

// Destroyed after main, when the objects of other files may be gone.
struct LateUser {
  ~LateUser() {
    if (sum_of_items(10, 4) != 45) _exit(1);
  }
} late_user;

}  // namespace
}  // namespace discreet::numerics
