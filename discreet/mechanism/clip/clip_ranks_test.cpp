#include "discreet/mechanism/clip/clip_ranks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <random>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/clip_plan.h"
#include "discreet/mechanism/clip/clip_rows.h"

namespace discreet::mechanism {
namespace {

constexpr std::size_t kRecords = 24;

ModelLayout model() {
  return ModelLayout({{.name = "a.weight", .shape = {130, 131}},
                      {.name = "a.bias", .shape = {131}},
                      {.name = "fixed.weight", .shape = {9}, .trainable = false},
                      {.name = "b.weight", .shape = {131, 7}},
                      {.name = "b.bias", .shape = {7}}});
}

// One buffer per tensor, as if all ranks shared the memory.
struct Data {
  std::vector<std::vector<float>> values;
  explicit Data(const ModelLayout& layout) {
    std::mt19937_64 random(41);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < layout.size(); ++i) {
      values.emplace_back(layout.tensors()[i].is_private() ? kRecords * layout.elements(i) : 0);
      for (float& x : values.back()) x = normal(random);
    }
  }
  // Records first ... first + count - 1.
  PerSampleGradients<float> records(const ModelLayout& layout, std::size_t first,
                                    std::size_t count) const {
    PerSampleGradients<float> view{count, {}};
    for (std::size_t i = 0; i < layout.size(); ++i)
      view.tensors.push_back(values[i].empty()
                                 ? std::span<const float>()
                                 : std::span(values[i]).subspan(first * layout.elements(i),
                                                                count * layout.elements(i)));
    return view;
  }
};

struct Whole {
  GradientSum sum;
  RecordNorms norms;
};

Whole one_rank(const ModelLayout& layout, const Data& data, const ClipPlan& plan,
               const ClipOptions& options = {}) {
  GradientSum sum(layout);
  RecordNorms norms =
      clip_per_sample(layout, data.records(layout, 0, kRecords), plan, options, sum);
  return {std::move(sum), std::move(norms)};
}

TEST(ClipAcrossRanks, GivesTheSumAndNormsOfOneRankForEveryWorldSize) {
  const ModelLayout layout = model();
  const Data data(layout);
  for (const Cut cut : {Cut::kFlat, Cut::kLayer}) {
    const ClipPlan plan = clip_plan(layout, cut, 0.5);
    const Whole whole = one_rank(layout, data, plan);
    // |error| <= gamma_{B+R} sum |terms| for both sums.
    GradientSum sizes(layout);
    for (std::size_t i = 0; i < layout.size(); ++i)
      for (std::size_t k = 0; k < data.values[i].size(); ++k)
        sizes.tensor(i)[k % layout.elements(i)] +=
            std::fabs(whole.norms.scale(k / layout.elements(i), plan.partition.part_of[i]) *
                      data.values[i][k]);
    for (const int world : {1, 2, 3, 4})
      for (const int per_node : {0, 2}) {
        std::mutex mutex;
        std::vector<std::vector<double>> sums;
        run_ranks(
            world,
            [&](Collective& ranks) {
              // Shares of different sizes; the last of 4 ranks has none.
              const std::size_t shares = world == 4 ? 3 : static_cast<std::size_t>(world);
              const std::size_t rank = static_cast<std::size_t>(ranks.rank());
              const std::size_t first = std::min(kRecords, kRecords * rank / shares);
              const std::size_t end = std::min(kRecords, kRecords * (rank + 1) / shares);
              GradientSum sum(layout);
              const RecordNorms norms = clip_across_ranks(
                  ranks, layout, data.records(layout, first, end - first), plan, {}, sum);
              const std::lock_guard lock(mutex);
              ASSERT_EQ(norms.records, end - first);
              for (std::size_t i = 0; i < norms.records; ++i)
                for (std::size_t g = 0; g < norms.parts; ++g) {
                  EXPECT_EQ(norms.norm(i, g), whole.norms.norm(first + i, g));
                  EXPECT_EQ(norms.scale(i, g), whole.norms.scale(first + i, g));
                }
              sums.emplace_back(sum.values().begin(), sum.values().end());
            },
            per_node);
        for (const auto& sum : sums) {
          EXPECT_EQ(sum, sums[0]);
          for (std::size_t k = 0; k < sum.size(); ++k)
            ASSERT_LE(std::fabs(sum[k] - whole.sum.values()[k]),
                      2 * (kRecords + 5) * 0x1p-53 * sizes.values()[k]);
        }
        if (world == 1) {
          EXPECT_TRUE(std::equal(sums[0].begin(), sums[0].end(), whole.sum.values().begin()));
        }
      }
  }
}

TEST(ClipAcrossRanks, AddsNothingAnywhereIfOneRankCannotClip) {
  const ModelLayout layout = model();
  Data data(layout);
  data.values[3][13 * layout.elements(3)] = std::numeric_limits<float>::infinity();  // record 13
  const ClipPlan plan = clip_plan(layout, Cut::kFlat, 1);
  std::mutex mutex;
  std::vector<std::string> errors(3);
  try {
    run_ranks(3, [&](Collective& ranks) {
      const std::size_t rank = static_cast<std::size_t>(ranks.rank());
      GradientSum sum(layout);
      std::fill(sum.values().begin(), sum.values().end(), 0.5);
      try {
        clip_across_ranks(ranks, layout, data.records(layout, 8 * rank, 8), plan, {}, sum);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        EXPECT_EQ(error.code(), ErrorCode::kInvalidGradient);
        errors[rank] = error.sentence();
        for (const double x : sum.values()) ASSERT_EQ(x, 0.5);
        throw;
      }
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidGradient);
  }
  EXPECT_NE(errors[0].find("rank 1 could not clip"), std::string::npos);
  EXPECT_NE(errors[1].find("tensor b.weight is not finite in record 5"), std::string::npos)
      << errors[1];
  EXPECT_NE(errors[2].find("rank 1 could not clip"), std::string::npos);
}

TEST(ClipSharded, GivesNormsNeverBelowAndScalesAsOfOneRank) {
  const ModelLayout layout = model();
  const Data data(layout);
  for (const Cut cut : {Cut::kFlat, Cut::kLayer}) {
    ClipPlan plan = clip_plan(layout, cut, 0.5);
    for (const bool hybrid : {false, true}) {
      if (hybrid) plan.flat_clip = 0.6;
      const Whole whole = one_rank(layout, data, plan);
      for (const int world : {1, 2, 3, 4}) {
        std::mutex mutex;
        run_ranks(world, [&](Collective& ranks) {
          bool held[5];
          for (int i = 0; i < 5; ++i) held[i] = i % world == ranks.rank();
          const ModelLayout shard = shard_of(layout, held);
          GradientSum sum(shard);
          const RecordNorms norms =
              clip_sharded(ranks, shard, data.records(layout, 0, kRecords), plan, {}, sum);
          const std::lock_guard lock(mutex);
          for (std::size_t i = 0; i < kRecords; ++i)
            for (std::size_t g = 0; g < norms.parts; ++g) {
              long double exact = 0;
              for (std::size_t t = 0; t < layout.size(); ++t)
                for (std::size_t k = 0; plan.partition.part_of[t] == g && k < layout.elements(t);
                     ++k) {
                  const long double x = data.values[t][i * layout.elements(t) + k];
                  exact += x * x;
                }
              EXPECT_GE(norms.norm(i, g) * (1 + 1e-18L), std::sqrt(exact));
              EXPECT_NEAR(norms.norm(i, g) / whole.norms.norm(i, g), 1, 30 * 0x1p-52);
              EXPECT_NEAR(norms.scale(i, g) / whole.norms.scale(i, g), 1, 40 * 0x1p-52);
            }
          for (std::size_t t = 0; t < layout.size(); ++t)
            for (std::size_t k = 0; k < sum.tensor(t).size(); ++k)
              ASSERT_NEAR(sum.tensor(t)[k], whole.sum.tensor(t)[k], 1e-14);
        });
      }
    }
  }
}

TEST(ClipSharded, ARecordThatIsNotFiniteOnOneRankIsZeroedOnAll) {
  const ModelLayout layout = model();
  Data data(layout);
  data.values[4][3 * layout.elements(4)] = std::nanf("");  // record 3, on rank 1
  const ClipPlan plan = clip_plan(layout, Cut::kLayer, 1);
  run_ranks(2, [&](Collective& ranks) {
    const bool first[] = {true, true, true, true, false}, second[] = {0, 0, 0, 0, true};
    const ModelLayout shard = shard_of(layout, ranks.rank() == 0 ? first : second);
    GradientSum sum(shard);
    const RecordNorms norms = clip_sharded(ranks, shard, data.records(layout, 0, kRecords), plan,
                                           {.nonfinite = Nonfinite::kZero}, sum);
    EXPECT_EQ(norms.zeroed[3], 1);
    EXPECT_EQ(norms.scale(3, 0), 0);
    EXPECT_EQ(norms.zeroed[2], 0);
    for (const double x : sum.values()) ASSERT_TRUE(std::isfinite(x));
    GradientSum untouched(shard);
    EXPECT_THROW(clip_sharded(ranks, shard, data.records(layout, 0, kRecords), plan, {}, untouched),
                 Error);
    for (const double x : untouched.values()) ASSERT_EQ(x, 0);
  });
}

TEST(ClipSharded, RefusesATensorHeldByTwoRanksOrByNone) {
  const ModelLayout layout = model();
  const Data data(layout);
  const ClipPlan plan = clip_plan(layout, Cut::kFlat, 1);
  for (const bool twice : {true, false}) {
    run_ranks(2, [&](Collective& ranks) {
      const bool held[] = {ranks.rank() == 0, twice, false, ranks.rank() == 1, ranks.rank() == 1};
      const ModelLayout shard = shard_of(layout, held);
      GradientSum sum(shard);
      try {
        clip_sharded(ranks, shard, data.records(layout, 0, kRecords), plan, {}, sum);
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
        EXPECT_NE(error.sentence().find("tensor a.bias"), std::string::npos);
      }
    });
  }
}

}  // namespace
}  // namespace discreet::mechanism
