#include "discreet/random/subsets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "discreet/base/error_testing.h"
#include "discreet/random/statistics_testing.h"

namespace discreet::random {
namespace {

using testing::kNormalLimit;
using Subset = std::vector<std::uint64_t>;

constexpr std::array kAlgorithms = {Algorithm::kPhilox4x32, Algorithm::kAes128Ctr,
                                    Algorithm::kChaCha20};

Generator coins(Algorithm algorithm = Algorithm::kPhilox4x32, std::uint64_t seed = 1) {
  return Generator(algorithm, Key::from_seed(seed).derive(stream::kSampling));
}

TEST(PoissonSubset, TakesEachRecordAtTheRate) {
  const Generator g = coins();
  for (const double rate : {1e-4, 0.01, 0.3, 0.5, 0.999}) {
    const double n = 1'000'000;
    const double count =
        static_cast<double>(poisson_subset(g, Position::at(1, 0), {0, 1'000'000}, rate).size());
    EXPECT_LT(std::abs(count - n * rate) / std::sqrt(n * rate * (1 - rate)), 5.3) << rate;
  }
}

TEST(PoissonSubset, TakesRecordsIndependentlyOfTheirPlace) {
  // Counts by place in the group of 64, over many groups: chi-square against equal shares.
  const auto subset = poisson_subset(coins(), Position::at(2, 0), {0, 6'400'000}, 0.02);
  std::vector<std::int64_t> places, gaps;
  for (const std::uint64_t record : subset)
    places.push_back(static_cast<std::int64_t>(record % 64));
  EXPECT_LT(std::abs(testing::chi_square_deviate(
                places, [](std::int64_t) { return 1.0 / 64; }, 0, 63)),
            kNormalLimit);
  for (std::size_t i = 1; i < subset.size(); ++i) {
    gaps.push_back(static_cast<std::int64_t>(subset[i] - subset[i - 1]));
  }
  EXPECT_LT(
      std::abs(testing::chi_square_deviate(
          gaps, [](std::int64_t k) { return 0.02 * std::pow(0.98, static_cast<double>(k - 1)); }, 1,
          1000)),
      kNormalLimit)
      << "gaps are geometric";
}

TEST(PoissonSubset, StepsAreIndependent) {
  const Generator g = coins(Algorithm::kAes128Ctr);
  const auto indicator = [&](std::uint64_t step) {
    std::vector<double> x(200'000);
    for (const auto r : poisson_subset(g, Position::at(step, 0), {0, 200'000}, 0.1)) x[r] = 1;
    return x;
  };
  EXPECT_LT(std::abs(testing::correlation_deviate(indicator(1), indicator(2))), kNormalLimit);
}

// The coin of a record decided number by number, from the same words.
Subset by_comparison(const Generator& g, const Position& p, std::uint64_t population, double rate) {
  BlockSource source(g);
  Subset out;
  for (std::uint64_t record = 0; record < population; ++record) {
    const std::uint64_t group = record / 64;
    std::vector<std::uint64_t> words(16), more(64);
    source.read(p.high, p.block(8 * group), words);
    source.read(p.high, p.reserve(8 * group), more);
    words.insert(words.end(), more.begin(), more.end());
    // 80 digits of the record's number against those of the rate.
    double rest = rate;
    for (const std::uint64_t word : words) {
      rest *= 2;
      const int rate_digit = rest >= 1;
      rest -= rate_digit;
      const int digit = static_cast<int>((word >> (record % 64)) & 1);
      if (digit != rate_digit) {
        if (digit < rate_digit) out.push_back(record);
        break;
      }
    }
  }
  return out;
}

TEST(PoissonSubset, ComparesEveryDigitOfTheRate) {
  // 2^-20 has sixteen leading zeros and more: every decision near it needs the further digits.
  const Generator g = coins(Algorithm::kChaCha20, 3);
  for (const double rate : {0.25, 0.1, 1.0 / 3, 0x1p-12, 0x1.8p-17}) {
    const Position p = Position::at(5, 0);
    EXPECT_EQ(poisson_subset(g, p, {0, 20'000}, rate), by_comparison(g, p, 20'000, rate)) << rate;
  }
}

TEST(PoissonSubset, TinyRatesTakeTheReserveAndStayExact) {
  const double count = static_cast<double>(
      poisson_subset(coins(), Position::at(6, 0), {0, 1 << 26}, 0x1.8p-20).size());
  EXPECT_LT(std::abs(count - 96) / std::sqrt(96.0), 5.5) << count;
}

TEST(PoissonSubset, DoesNotDependOnThreadsRanksOrCuts) {
  for (const Algorithm algorithm : kAlgorithms) {
    const Generator g = coins(algorithm);
    const Position p = Position::at(3, 0);
    const Subset whole = poisson_subset(g, p, {0, 120'000}, 0.05);
    EXPECT_EQ(poisson_subset(g, p, {0, 120'000}, 0.05, 2), whole);
    EXPECT_EQ(poisson_subset(g, p, {0, 120'000}, 0.05, 7), whole);
    Subset joined;
    const std::uint64_t cuts[] = {0, 1, 63, 64, 65, 1000, 33'333, 70'000, 120'000};
    for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
      const Subset part = poisson_subset(g, p, {cuts[i], cuts[i + 1]}, 0.05);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, whole);
  }
}

TEST(PoissonSubset, KnowsTheEnds) {
  const Generator g = coins();
  EXPECT_TRUE(poisson_subset(g, Position{}, {0, 1000}, 0.0).empty());
  EXPECT_EQ(poisson_subset(g, Position{}, {5, 8}, 1.0), (Subset{5, 6, 7}));
  EXPECT_TRUE(poisson_subset(g, Position{}, {8, 8}, 0.5).empty());
  EXPECT_TRUE(poisson_subset(g, Position{}, {0, 1000}, 5e-324).empty());
  for (const double bad : {-0.1, 1.1, std::nan(""), HUGE_VAL}) {
    EXPECT_EQ(code_of([&] {
                poisson_subset(g, Position{}, {0, 10}, bad);
              }),
              ErrorCode::kInvalidDpConfig);
  }
}

TEST(Permutation, EveryOrderIsEquallyLikely) {
  const Generator g = coins();
  std::map<Subset, std::int64_t> number;
  std::vector<std::int64_t> seen;
  for (std::uint64_t step = 0; step < 24'000; ++step) {
    const Subset order = permutation(g, Position::at(step, 1), 4);
    seen.push_back(
        number.try_emplace(order, static_cast<std::int64_t>(number.size())).first->second);
  }
  EXPECT_EQ(number.size(), 24u);
  EXPECT_LT(std::abs(testing::chi_square_deviate(
                seen, [](std::int64_t) { return 1.0 / 24; }, 0, 23)),
            kNormalLimit);
}

TEST(Permutation, HoldsEveryRecordOnceOnEveryGenerator) {
  for (const Algorithm algorithm : kAlgorithms) {
    Subset order = permutation(coins(algorithm), Position::at(1, 1), 10'000);
    EXPECT_EQ(order, permutation(coins(algorithm), Position::at(1, 1), 10'000));
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    std::sort(order.begin(), order.end());
    for (std::uint64_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], i);
  }
  EXPECT_TRUE(permutation(coins(), Position{}, 0).empty());
  EXPECT_EQ(permutation(coins(), Position{}, 1), Subset{0});
}

TEST(FixedSizeSubset, EverySubsetIsEquallyLikely) {
  const Generator g = coins();
  std::map<Subset, std::int64_t> number;
  std::vector<std::int64_t> seen;
  for (std::uint64_t step = 0; step < 20'000; ++step) {
    const Subset subset = fixed_size_subset(g, Position::at(step, 2), 6, 3);
    seen.push_back(
        number.try_emplace(subset, static_cast<std::int64_t>(number.size())).first->second);
  }
  EXPECT_EQ(number.size(), 20u);
  EXPECT_LT(std::abs(testing::chi_square_deviate(
                seen, [](std::int64_t) { return 1.0 / 20; }, 0, 19)),
            kNormalLimit);
}

TEST(FixedSizeSubset, HasItsSizeWhateverThePopulation) {
  for (const Algorithm algorithm : kAlgorithms) {
    const Generator g = coins(algorithm);
    for (const std::uint64_t population : {256ull, 60'000ull, 1ull << 60}) {
      const Subset subset = fixed_size_subset(g, Position::at(1, 2), population, 256);
      EXPECT_EQ(std::set(subset.begin(), subset.end()).size(), 256u);
      EXPECT_TRUE(std::is_sorted(subset.begin(), subset.end()));
      EXPECT_LT(subset.back(), population);
    }
  }
  EXPECT_EQ(code_of([] { fixed_size_subset(coins(), Position{}, 5, 6); }),
            ErrorCode::kInvalidDpConfig);
}

TEST(AssignBins, FillsBinsEvenlyAndAfreshEachEpoch) {
  const Generator g = coins();
  std::vector<std::uint32_t> first(200'000), second(200'000);
  assign_bins(g, Position::at(0, 3), 37, first);
  assign_bins(g, Position::at(1, 3), 37, second);
  const std::vector<std::int64_t> bins(first.begin(), first.end());
  EXPECT_LT(std::abs(testing::chi_square_deviate(
                bins, [](std::int64_t) { return 1.0 / 37; }, 0, 36)),
            kNormalLimit);
  const std::vector<double> a(first.begin(), first.end()), b(second.begin(), second.end());
  EXPECT_LT(std::abs(testing::correlation_deviate(a, b)), kNormalLimit);
}

TEST(AssignBins, DoesNotDependOnThreadsOrCuts) {
  for (const Algorithm algorithm : kAlgorithms) {
    const Generator g = coins(algorithm);
    std::vector<std::uint32_t> whole(20'001), other(20'001);
    assign_bins(g, Position::at(4, 3, 17), 100, whole);
    for (const int threads : {2, 7}) {
      assign_bins(g, Position::at(4, 3, 17), 100, other, threads);
      EXPECT_EQ(other, whole);
    }
    std::vector<std::uint32_t> cut(20'001);
    for (std::size_t at = 0, size = 1; at < cut.size(); at += size, size = size * 3 % 900 + 1) {
      assign_bins(g, Position::at(4, 3, 17 + at), 100,
                  std::span(cut).subspan(at, std::min(size, cut.size() - at)));
    }
    EXPECT_EQ(cut, whole);
  }
  std::vector<std::uint32_t> out(3);
  EXPECT_EQ(code_of([&] { assign_bins(coins(), Position{}, 0, out); }),
            ErrorCode::kInvalidDpConfig);
}

}  // namespace
}  // namespace discreet::random
