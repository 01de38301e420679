#include "discreet/mechanism/sample/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>

#include "discreet/base/fork_testing.h"
#include "discreet/config/config_table.h"
#include "discreet/random/statistics_testing.h"

namespace discreet::mechanism {
namespace {

using accounting::Adjacency;
using random::testing::chi_square_deviate;
using random::testing::kNormalLimit;  // false alarm below 1e-6 for a new seed
using Batch = std::vector<std::uint64_t>;

constexpr std::array kModes = {SamplingMode::kPoisson,       SamplingMode::kTruncatedPoisson,
                               SamplingMode::kFixedSize,     SamplingMode::kBallsAndBins,
                               SamplingMode::kShuffledEpoch, SamplingMode::kSequential};

random::Generator coins(std::uint64_t seed = 1) {
  return random::Generator(random::Algorithm::kAes128Ctr,
                           random::Key::from_seed(seed).derive(random::stream::kSampling));
}

SamplingPlan plan_of(SamplingMode mode, std::uint64_t size, std::uint64_t batch,
                     std::optional<std::uint64_t> most = std::nullopt) {
  DpConfig config;
  config.sampling_mode = mode;
  const bool by_coins = mode == SamplingMode::kPoisson || mode == SamplingMode::kTruncatedPoisson;
  const bool sequential = mode == SamplingMode::kSequential;
  config.subsampling = by_coins     ? Subsampling::kPoisson
                       : sequential ? Subsampling::kNone
                                    : Subsampling::kShuffleWithoutReplacement;
  if (sequential || mode == SamplingMode::kShuffledEpoch) config.adjacency = Adjacency::kZeroOut;
  config.declared_size = size;
  config.effective_batch_size = batch;
  if (mode == SamplingMode::kTruncatedPoisson) config.truncated_batch = most.value_or(batch);
  return plan_sampling(config);
}

Sampler sampler_of(SamplingMode mode, std::uint64_t size, std::uint64_t batch,
                   std::optional<std::uint64_t> most = std::nullopt) {
  return Sampler(plan_of(mode, size, batch, most), size, coins());
}

std::int64_t mask_of(const Batch& batch) {
  std::int64_t mask = 0;
  for (const std::uint64_t record : batch) mask |= std::int64_t{1} << record;
  return mask;
}

// The batches of many steps, as sets of bits.
std::vector<std::int64_t> masks(Sampler sampler, std::uint64_t first, std::uint64_t stride,
                                int count) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = mask_of(sampler.batch(first + stride * i));
  return out;
}

TEST(Sampler, PoissonHasTheExactLawOfIndependentCoins) {
  const auto law = [](std::int64_t mask) {
    const int k = std::popcount(static_cast<std::uint64_t>(mask));
    return std::pow(0.4, k) * std::pow(0.6, 5 - k);
  };
  const auto sample = masks(sampler_of(SamplingMode::kPoisson, 5, 2), 0, 1, 40000);
  EXPECT_LT(std::abs(chi_square_deviate(sample, law, 0, 31)), kNormalLimit);
}

TEST(Sampler, TruncationKeepsAUniformSubsetOfThoseSelected) {
  // 3 of 5 on average, at most 2 kept: nearly every batch is cut.
  const double q = 0.6;
  const auto law = [&](std::int64_t mask) {
    const int k = std::popcount(static_cast<std::uint64_t>(mask));
    if (k > 2) return 0.0;
    const double p = std::pow(q, k) * std::pow(1 - q, 5 - k);
    if (k < 2) return p;
    double all = 0;  // k' selected, of which these two are kept: C(3, k'-2) ways, 1 / C(k', 2) each
    const double ways[] = {1, 3, 3, 1}, pairs[] = {1, 3, 6, 10};
    for (int more = 0; more <= 3; ++more)
      all += ways[more] / pairs[more] * std::pow(q, 2 + more) * std::pow(1 - q, 3 - more);
    return all;
  };
  double total = 0;
  for (int mask = 0; mask < 32; ++mask) total += law(mask);
  ASSERT_NEAR(total, 1, 1e-12);
  const auto sample = masks(sampler_of(SamplingMode::kTruncatedPoisson, 5, 3, 2), 0, 1, 40000);
  // Cells in order of their law, so that the empty ones are at the end.
  std::vector<std::int64_t> order(32), place(32), ranked;
  for (int i = 0; i < 32; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return law(a) > law(b); });
  for (int i = 0; i < 32; ++i) place[order[i]] = i;
  for (const std::int64_t mask : sample) {
    ASSERT_LE(std::popcount(static_cast<std::uint64_t>(mask)), 2);
    ranked.push_back(place[mask]);
  }
  EXPECT_LT(std::abs(chi_square_deviate(
                ranked, [&](std::int64_t i) { return law(order[i]); }, 0, 15)),
            kNormalLimit);
}

TEST(Sampler, FixedSizeTakesEverySubsetEquallyOften) {
  const auto sample = masks(sampler_of(SamplingMode::kFixedSize, 6, 2), 0, 1, 30000);
  std::vector<std::int64_t> pairs, index(64, -1);
  std::int64_t next = 0;
  for (int mask = 0; mask < 64; ++mask)
    if (std::popcount(static_cast<unsigned>(mask)) == 2) index[mask] = next++;
  ASSERT_EQ(next, 15);
  for (const std::int64_t mask : sample) {
    ASSERT_GE(index[mask], 0);
    pairs.push_back(index[mask]);
  }
  EXPECT_LT(std::abs(chi_square_deviate(
                pairs, [](std::int64_t) { return 1.0 / 15; }, 0, 14)),
            kNormalLimit);
}

TEST(Sampler, BallsAndBinsGivesEveryRecordItsOwnUniformLot) {
  // Four records in three batches: 81 equally likely epochs, read from the first two batches.
  Sampler three(plan_of(SamplingMode::kBallsAndBins, 6, 2), 4, coins());
  ASSERT_EQ(three.plan().steps_per_epoch, 3u);
  std::vector<std::int64_t> epochs;
  for (std::uint64_t e = 0; e < 20000; ++e) {
    std::int64_t code = 0;
    for (std::uint64_t s = 0; s < 3; ++s)
      for (const std::uint64_t record : three.batch(3 * e + s))
        code += static_cast<std::int64_t>(s) * static_cast<std::int64_t>(std::pow(3, record));
    epochs.push_back(code);
  }
  EXPECT_LT(std::abs(chi_square_deviate(
                epochs, [](std::int64_t) { return 1.0 / 81; }, 0, 80)),
            kNormalLimit);
}

TEST(Sampler, ShuffledEpochsCutAUniformPermutation) {
  // The first of two batches of three: 20 subsets, equally likely, fresh each epoch.
  const auto sample = masks(sampler_of(SamplingMode::kShuffledEpoch, 6, 3), 0, 2, 30000);
  std::vector<std::int64_t> triples, index(64, -1);
  std::int64_t next = 0;
  for (int mask = 0; mask < 64; ++mask)
    if (std::popcount(static_cast<unsigned>(mask)) == 3) index[mask] = next++;
  for (const std::int64_t mask : sample) {
    ASSERT_GE(index[mask], 0);
    triples.push_back(index[mask]);
  }
  EXPECT_LT(std::abs(chi_square_deviate(
                triples, [](std::int64_t) { return 1.0 / 20; }, 0, 19)),
            kNormalLimit);
}

TEST(Sampler, EveryEpochOfBallsAndBinsShufflesAndSequencesPartitionsTheRecords) {
  for (const SamplingMode mode :
       {SamplingMode::kBallsAndBins, SamplingMode::kShuffledEpoch, SamplingMode::kSequential}) {
    Sampler sampler = sampler_of(mode, 1003, 100);
    ASSERT_EQ(sampler.plan().steps_per_epoch, 11u);
    Batch last;
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      Batch all;
      for (std::uint64_t s = 0; s < 11; ++s) {
        const Batch batch = sampler.batch(11 * epoch + s);
        EXPECT_TRUE(std::is_sorted(batch.begin(), batch.end()));
        const bool equal = batch.size() == 91 || batch.size() == 92;
        EXPECT_TRUE(equal || mode == SamplingMode::kBallsAndBins);
        all.insert(all.end(), batch.begin(), batch.end());
      }
      EXPECT_TRUE(all != last || mode == SamplingMode::kSequential) << "the same epoch twice";
      last = all;
      std::sort(all.begin(), all.end());
      ASSERT_EQ(all.size(), 1003u);
      for (std::uint64_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i);
    }
  }
}

TEST(Sampler, GivesTheSameMasksToAnyNumberOfRanks) {
  for (const SamplingMode mode : kModes) {
    for (const std::uint64_t world : {1, 2, 4, 7}) {
      for (const std::uint64_t step : {0, 5, 23}) {
        const Batch whole = sampler_of(mode, 5000, 500).batch(step);
        Batch joined;
        for (std::uint64_t rank = 0; rank < world; ++rank) {
          // Every rank has a sampler of its own, from the same key.
          Sampler sampler = sampler_of(mode, 5000, 500);
          const Batch share = sampler.batch(step, rank, world);
          EXPECT_TRUE(std::is_sorted(share.begin(), share.end()));
          for (const std::uint64_t record : share) EXPECT_EQ(record % world, rank);
          joined.insert(joined.end(), share.begin(), share.end());
        }
        std::sort(joined.begin(), joined.end());
        EXPECT_EQ(joined, whole) << spelling(mode) << " " << world << " " << step;
      }
    }
  }
}

TEST(Sampler, IsAFunctionOfKeyAndStepWhateverWasAskedBefore) {
  for (const SamplingMode mode : kModes) {
    Sampler forward = sampler_of(mode, 300, 30), backward = sampler_of(mode, 300, 30);
    std::vector<Batch> batches;
    for (std::uint64_t step = 0; step < 40; ++step) batches.push_back(forward.batch(step));
    for (std::uint64_t step = 40; step-- > 0;) EXPECT_EQ(backward.batch(step), batches[step]);
    if (mode == SamplingMode::kSequential) continue;
    EXPECT_NE(batches[0], batches[1]);
    Sampler other(plan_of(mode, 300, 30), 300, coins(2));
    EXPECT_NE(other.batch(0), batches[0]) << "another key, another batch";
  }
}

TEST(Sampler, TakesItsRateFromTheDeclarationAlsoWhereTheRowsDiffer) {
  // One row less changes neither the rate nor the coins of the others.
  const SamplingPlan plan = plan_of(SamplingMode::kPoisson, 10000, 1000);
  Sampler fewer(plan, 9999, coins()), more(plan, 10000, coins());
  Batch a = fewer.batch(3), b = more.batch(3);
  std::erase_if(b, [](std::uint64_t record) { return record >= 9999; });
  EXPECT_EQ(a, b);
  const SamplingPlan bins = plan_of(SamplingMode::kBallsAndBins, 10000, 1000);
  a = Sampler(bins, 9999, coins()).batch(3), b = Sampler(bins, 10000, coins()).batch(3);
  std::erase_if(b, [](std::uint64_t record) { return record >= 9999; });
  EXPECT_EQ(a, b);
}

TEST(Sampler, RefusesRowsThatItsLawDoesNotAllow) {
  for (const SamplingMode mode : {SamplingMode::kTruncatedPoisson, SamplingMode::kFixedSize,
                                  SamplingMode::kShuffledEpoch, SamplingMode::kSequential}) {
    try {
      Sampler sampler(plan_of(mode, 1000, 10), 999, coins());
      FAIL() << spelling(mode);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
      EXPECT_NE(error.sentence().find("999"), std::string::npos);
      EXPECT_NE(error.sentence().find("1000"), std::string::npos);
    }
  }
  EXPECT_THROW(
      Sampler(plan_of(SamplingMode::kPoisson, 10, 1), (std::uint64_t{1} << 51) + 1, coins()),
      Error);
  SamplingPlan unfinished;
  unfinished.size = 10;
  EXPECT_THROW(Sampler(unfinished, 10, coins()), Error);
  unfinished.mode = SamplingMode::kBallsAndBins;
  unfinished.steps_per_epoch = 0;
  EXPECT_THROW(Sampler(unfinished, 10, coins()), Error);
  Sampler sampler = sampler_of(SamplingMode::kPoisson, 100, 10);
  EXPECT_THROW(sampler.batch(0, 2, 2), Error);
  EXPECT_THROW(sampler.batch(0, 0, 0), Error);
  EXPECT_THROW(sampler.batch(std::uint64_t{1} << 24), Error);
  EXPECT_EQ(sampler.batch((1 << 24) - 1), sampler.batch((1 << 24) - 1));
}

TEST(Sampler, DrawsNothingInAForkedProcess) {
  for (const SamplingMode mode : {SamplingMode::kPoisson, SamplingMode::kBallsAndBins,
                                  SamplingMode::kShuffledEpoch, SamplingMode::kFixedSize}) {
    Sampler sampler(plan_of(mode, 100, 10), 100,
                    random::Generator::secure(random::Key::from_system()));
    const Batch before = sampler.batch(3);
    EXPECT_EQ(code_in_fork([&] { sampler.batch(3); }), ErrorCode::kRngConsumptionViolation)
        << spelling(mode);
    EXPECT_EQ(sampler.batch(3), before);
  }
}

TEST(Sampler, ServesEmptyAndHugePopulations) {
  EXPECT_TRUE(Sampler(plan_of(SamplingMode::kPoisson, 10, 5), 0, coins()).batch(0).empty());
  EXPECT_TRUE(Sampler(plan_of(SamplingMode::kBallsAndBins, 10, 5), 0, coins()).batch(1).empty());
  const std::uint64_t huge = std::uint64_t{1} << 38;
  Batch batch = sampler_of(SamplingMode::kFixedSize, huge, 1 << 14).batch(7);
  EXPECT_EQ(batch.size(), 1u << 14);
  EXPECT_LT(batch.back(), huge);
  EXPECT_GT(batch.back(), huge - huge / 100);
  Sampler ordered = sampler_of(SamplingMode::kSequential, huge, 1 << 14);
  batch = ordered.batch((1 << 24) - 1, 3, 1 << 10);
  EXPECT_EQ(batch.size(), 1u << 4);
  EXPECT_EQ(batch.back(), huge - (1 << 10) + 3);
  // One record.
  EXPECT_EQ(sampler_of(SamplingMode::kFixedSize, 1, 1).batch(0), Batch{0});
}

// Batches of more records than were declared would be charged as a rare event, and are not one.
TEST(Sampler, RejectsMoreRecordsThanWereDeclared) {
  for (const SamplingMode mode : {SamplingMode::kPoisson, SamplingMode::kBallsAndBins}) {
    const SamplingPlan plan = plan_of(mode, 600, 20);
    EXPECT_NO_THROW(Sampler(plan, 600, coins()));
    try {
      Sampler(plan, 601, coins());
      FAIL() << "601 records were accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
      EXPECT_NE(error.sentence().find("declared_size is 600"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace discreet::mechanism
