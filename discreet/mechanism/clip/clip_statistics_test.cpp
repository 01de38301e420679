#include "discreet/mechanism/clip/clip_statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "discreet/base/error.h"

namespace discreet::mechanism {
namespace {

ClipPlan plan_of(std::vector<double> clip, std::optional<double> flat = std::nullopt) {
  ClipPlan plan;
  plan.clip = std::move(clip);
  plan.flat_clip = flat;
  for (std::size_t g = 0; g < plan.clip.size(); ++g) {
    plan.partition.names.push_back("part" + std::to_string(g));
    plan.partition.part_of.push_back(static_cast<std::uint32_t>(g));
    plan.partition.elements.push_back(1);
  }
  return plan;
}

RecordNorms clipped(const ClipPlan& plan, std::vector<double> norms,
                    std::vector<std::uint8_t> zeroed = {}) {
  RecordNorms out;
  out.parts = plan.clip.size();
  out.records = norms.size() / out.parts;
  out.norms = std::move(norms);
  out.zeroed = zeroed.empty() ? std::vector<std::uint8_t>(out.records) : std::move(zeroed);
  decide_scales(plan, out);
  return out;
}

ClipStatistics statistics_of(const RecordNorms& norms) {
  ClipStatistics statistics(norms.parts);
  statistics.add(norms);
  return statistics;
}

TEST(ClipStatistics, CountRecordsClippedAnywhereAndInEachPart) {
  // Norms (part 0, part 1) against bounds 1 and 2.
  const auto s = statistics_of(clipped(plan_of({1, 2}), {0.5, 0.5, 3, 1, 3, 4, 0.1, 5}));
  EXPECT_EQ(s.records(), 4u);
  EXPECT_EQ(s.clip_fraction(), 0.75);
  EXPECT_EQ(s.group_clip_fraction(0), 0.5);
  EXPECT_EQ(s.group_clip_fraction(1), 0.5);
  EXPECT_EQ(s.fairness_clip_ratio(), 1);
}

TEST(ClipStatistics, FairnessIsTheLeastClippedPartOverTheMostClipped) {
  const auto s = statistics_of(clipped(plan_of({1, 2}), {5, 5, 5, 1, 5, 1, 5, 1}));
  EXPECT_EQ(s.group_clip_fraction(0), 1);
  EXPECT_EQ(s.group_clip_fraction(1), 0.25);
  EXPECT_EQ(s.fairness_clip_ratio(), 0.25);
  EXPECT_EQ(statistics_of(clipped(plan_of({9, 9}), {1, 1})).fairness_clip_ratio(), 1);
  EXPECT_EQ(statistics_of(clipped(plan_of({9, .5}), {1, 1})).fairness_clip_ratio(), 0);
}

TEST(ClipStatistics, AFlatBoundCountsInEveryPartThatItCut) {
  const auto s = statistics_of(clipped(plan_of({9, 9}, 1), {3, 4, 0.1, 0.1}));
  EXPECT_EQ(s.clip_fraction(), 0.5);
  EXPECT_EQ(s.group_clip_fraction(0), 0.5);
  EXPECT_EQ(s.group_clip_fraction(1), 0.5);
}

TEST(ClipStatistics, NormsAreOfTheWholeRecordAndNeverBelow) {
  const auto s = statistics_of(clipped(plan_of({1, 1}), {3, 4}));
  EXPECT_GE(s.norm_max(), 5);
  EXPECT_NEAR(s.norm_max(), 5, 1e-13);
}

TEST(ClipStatistics, QuantilesAreNearestRanksOfASortedList) {
  std::mt19937_64 random(3);
  for (const std::size_t n : {1, 2, 3, 19, 20, 21, 100, 257}) {
    std::vector<double> norms(n);
    for (double& x : norms) x = std::ldexp(static_cast<double>(random() >> 40), -10);
    const auto s = statistics_of(clipped(plan_of({1}), norms));
    std::sort(norms.begin(), norms.end());
    const auto rank = [&](std::size_t numerator, std::size_t denominator) {
      return norms[(numerator * n + denominator - 1) / denominator - 1];
    };
    EXPECT_NEAR(s.norm_p50(), rank(1, 2), 1e-9) << n;
    EXPECT_NEAR(s.norm_p95(), rank(19, 20), 1e-9) << n;
    EXPECT_NEAR(s.norm_max(), norms.back(), 1e-9) << n;
    EXPECT_NEAR(s.quantile(0).norm, norms.front(), 1e-9) << n;
  }
}

TEST(ClipStatistics, OfEqualNormsTheLowestRecordIsNamedCountingFromZero) {
  const auto s = statistics_of(clipped(plan_of({1}), {7, 2, 7, 2, 7}));
  EXPECT_EQ(s.quantile(1).record, 0u);
  EXPECT_EQ(s.quantile(0.5).record, 0u);  // the third smallest is a 7; record 0 has it first
  EXPECT_EQ(s.quantile(0).record, 1u);
  EXPECT_EQ(s.quantile(0.4).record, 1u);
}

TEST(ClipStatistics, AZeroedRecordIsCountedApartAndInNothingElse) {
  const auto s = statistics_of(clipped(plan_of({1}), {0, 4, 0.5}, {1, 0, 0}));
  EXPECT_EQ(s.records(), 3u);
  EXPECT_EQ(s.zeroed(), 1u);
  EXPECT_EQ(s.clip_fraction(), 0.5);
  EXPECT_EQ(s.quantile(0).record, 2u);
  const auto none = statistics_of(clipped(plan_of({1}), {0}, {1}));
  EXPECT_EQ(none.clip_fraction(), 0);
  EXPECT_EQ(none.norm_max(), 0);
}

TEST(ClipStatistics, OfAnotherRankWithANormThatIsNoNumberAreRefused) {
  RecordNorms norms = clipped(plan_of({1}), {3, 0.5});
  EXPECT_EQ(ClipStatistics::decode(statistics_of(norms).encode()).norm_max(), 3);
  norms.norms[1] = std::nan("");
  EXPECT_THROW(ClipStatistics::decode(statistics_of(norms).encode()), Error);
}

TEST(ClipStatistics, OfAnEmptyBatchAreDefined) {
  ClipStatistics empty(2);
  EXPECT_EQ(empty.clip_fraction(), 0);
  EXPECT_EQ(empty.group_clip_fraction(1), 0);
  EXPECT_EQ(empty.fairness_clip_ratio(), 1);
  EXPECT_EQ(empty.norm_p50(), 0);
  EXPECT_EQ(empty.norm_max(), 0);
  EXPECT_EQ(ClipStatistics(0).fairness_clip_ratio(), 1);
}

TEST(ClipStatistics, OfMicrobatchesAndRanksMergeToThoseOfTheBatch) {
  const ClipPlan plan = plan_of({1, 2}, 2.5);
  std::mt19937_64 random(4);
  std::vector<double> norms(100);
  for (double& x : norms) x = static_cast<double>(random() % 8) / 2;  // many ties
  const auto whole = statistics_of(clipped(plan, norms));
  for (const std::size_t piece : {1, 7, 25, 49}) {
    ClipStatistics merged(2), added(2);
    for (std::size_t first = 0; first < 50; first += piece) {
      const std::size_t last = std::min<std::size_t>(50, first + piece);
      const auto part =
          clipped(plan, std::vector<double>(norms.begin() + 2 * first, norms.begin() + 2 * last));
      merged.merge(statistics_of(part));
      added.add(part);
    }
    EXPECT_EQ(merged, whole);
    EXPECT_EQ(added, whole);
    EXPECT_EQ(merged.quantile(1), whole.quantile(1));
  }
}

TEST(ClipStatistics, RefuseWhatDoesNotBelongAndStayAsTheyWere) {
  ClipStatistics s(1);
  RecordNorms undecided;
  undecided.parts = 1;
  undecided.records = 1;
  undecided.norms = {1};
  undecided.zeroed = {0};
  EXPECT_THROW(s.add(undecided), Error);
  EXPECT_THROW(s.add(clipped(plan_of({1, 1}), {1, 1})), Error);
  EXPECT_THROW(s.merge(ClipStatistics(2)), Error);
  EXPECT_THROW(s.quantile(1.5), Error);
  EXPECT_THROW(s.quantile(std::nan("")), Error);
  EXPECT_EQ(s, ClipStatistics(1));
}

TEST(PeftNoiseReduction, IsTheNormOfNoiseOnAllParametersOverThatOnTheAdapters) {
  const ModelLayout adapters({{.name = "base.weight", .shape = {75}, .trainable = false},
                              {.name = "lora.a", .shape = {25}, .adapter = "lora"}});
  EXPECT_EQ(peft_noise_reduction_factor(adapters), 2);
  const std::vector<std::string> all = {"lora"};
  EXPECT_GT(peft_noise_reduction_factor(adapters.with_public(all)), 1e6);
  EXPECT_TRUE(std::isfinite(peft_noise_reduction_factor(adapters.with_public(all))));
  EXPECT_EQ(peft_noise_reduction_factor(ModelLayout({{.name = "w", .shape = {4}}})), 1);
  EXPECT_EQ(peft_noise_reduction_factor(ModelLayout({})), 1);
}

}  // namespace
}  // namespace discreet::mechanism
