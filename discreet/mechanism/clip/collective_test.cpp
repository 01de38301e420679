#include "discreet/mechanism/clip/collective.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>

#include "discreet/base/error.h"

namespace discreet::mechanism {
namespace {

TEST(Ranks, SumInAscendingOrderOnEveryRank) {
  // 1 + 2^53 + (-2^53) + 1: only the ascending order gives 1.
  const double terms[] = {1, 0x1p53, -0x1p53, 1};
  std::atomic<int> right = 0;
  run_ranks(4, [&](Collective& ranks) {
    std::vector<double> values(5, terms[ranks.rank()]);
    ranks.all_reduce_sum(values);
    if (values == std::vector<double>(5, ((1 + 0x1p53) - 0x1p53) + 1)) ++right;
  });
  EXPECT_EQ(right, 4);
}

TEST(Ranks, HierarchicalSumsGoNodeByNode) {
  // Nodes {0, 1}, {2, 3}, {4}: (1 + 2^54) + (-2^54 + 1) + 2 loses both ones, flat only the first.
  const double terms[] = {1, 0x1p54, -0x1p54, 1, 2};
  const double by_node = ((1 + 0x1p54) + (-0x1p54 + 1)) + 2;
  const double flat = (((1 + 0x1p54) - 0x1p54) + 1) + 2;
  ASSERT_NE(by_node, flat);
  std::atomic<int> right = 0;
  run_ranks(
      5,
      [&](Collective& ranks) {
        std::vector<double> values(3, terms[ranks.rank()]);
        ranks.all_reduce_sum(values);
        if (values == std::vector<double>(3, by_node)) ++right;
      },
      2);
  EXPECT_EQ(right, 5);
}

TEST(Ranks, GatherInRankOrder) {
  for (const int world : {1, 2, 3, 4}) {
    run_ranks(world, [&](Collective& ranks) {
      EXPECT_EQ(ranks.world_size(), world);
      for (int round = 0; round < 50; ++round) {
        const double own[] = {100.0 * round + ranks.rank(), 7};
        const std::vector<double> all = ranks.all_gather(own);
        ASSERT_EQ(all.size(), 2u * static_cast<unsigned>(world));
        for (int r = 0; r < world; ++r) {
          EXPECT_EQ(all[static_cast<std::size_t>(2 * r)], 100.0 * round + r);
          EXPECT_EQ(all[static_cast<std::size_t>(2 * r + 1)], 7);
        }
        ranks.barrier();
      }
      EXPECT_TRUE(ranks.all_gather({}).empty());
    });
  }
}

TEST(Ranks, AnErrorOnOneRankEndsAllWithIt) {
  for (const int failing : {0, 1, 3}) {
    std::atomic<int> ended = 0;
    try {
      run_ranks(4, [&](Collective& ranks) {
        ranks.barrier();
        if (ranks.rank() == failing)
          throw Error(ErrorCode::kInvalidGradient, "Clip_v1", "record 3 is not finite");
        try {
          ranks.all_gather({});
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kInvalidGradient);
          EXPECT_EQ(error.sentence(), "record 3 is not finite");
          ++ended;
          throw;
        }
      });
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidGradient);
    }
    EXPECT_EQ(ended, 3);
  }
}

TEST(Ranks, WhatWasThrownReachesTheCallerAsItIs) {
  EXPECT_THROW(run_ranks(3,
                         [](Collective& ranks) {
                           if (ranks.rank() == 2) throw std::out_of_range("mine");
                           ranks.barrier();
                         }),
               std::out_of_range);
}

TEST(Ranks, ThatDisagreeEndInsteadOfWaiting) {
  const auto code = [](auto f) {
    try {
      run_ranks(3, f);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kIoError;
  };
  EXPECT_EQ(code([](Collective& ranks) {
              std::vector<double> values(ranks.rank() == 1 ? 2 : 3);
              ranks.all_reduce_sum(values);
            }),
            ErrorCode::kInvalidInput);
  EXPECT_EQ(code([](Collective& ranks) {
              if (ranks.rank() == 1)
                ranks.barrier();
              else
                ranks.all_gather({});
            }),
            ErrorCode::kInvalidInput);
  EXPECT_EQ(code([](Collective& ranks) {
              if (ranks.rank() != 1) ranks.barrier();
            }),
            ErrorCode::kInvalidInput);
  EXPECT_THROW(run_ranks(0, [](Collective&) {}), Error);
}

}  // namespace
}  // namespace discreet::mechanism
