#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "discreet/mechanism/clip/clip_plan.h"
#include "discreet/mechanism/clip/clip_rows.h"
#include "discreet/mechanism/clip/reach_impl.h"
#include "discreet/numerics/targets_testing.h"

namespace discreet::mechanism {
namespace {

constexpr std::size_t kRows = 91, kColumns = 257, kElements = kRows * kColumns, kRecords = 70;
constexpr std::uint32_t kClasses = 3;
constexpr std::uint8_t kPermitted[] = {1, 1, 1, 1,   // class 0 reaches everything
                                       1, 0, 1, 0,   // class 1 every other stripe
                                       1, 1, 0, 0};  // class 2 the first tensor

// Every other stripe of a tensor belongs to one cell, the others to another.
std::vector<CoordinateRange> stripes(std::size_t stripe) {
  std::vector<CoordinateRange> out;
  for (std::uint32_t tensor = 0; tensor < 2; ++tensor)
    for (const std::uint32_t cell : {0u, 1u})
      for (std::size_t at = cell * stripe; at < kElements; at += 2 * stripe)
        out.push_back({tensor, at, std::min(at + stripe, kElements), 2 * tensor + cell});
  return out;
}

template <class Real>
const std::vector<std::vector<Real>>& drawn() {
  static const auto values = [] {
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    std::vector<std::vector<Real>> out(2, std::vector<Real>(kRecords * kElements));
    for (auto& tensor : out)
      for (Real& v : tensor) v = static_cast<Real>(normal(random));
    return out;
  }();
  return values;
}

// A clip of the two tensors as parts, with bounds that most records exceed.
void decide(std::size_t first, std::size_t end, RecordNorms& norms) {
  for (std::size_t i = first; i < end; ++i)
    for (std::size_t part = 0; part < 2; ++part)
      norms.scales[i * 2 + part] =
          norms.zeroed[i] != 0 ? 0 : clip_scale(norms.norm(i, part), part == 0 ? 100 : 0.5);
}

// What a record may not reach is NaN, and must not matter: norms, scales and sums are those
// of clip_per_sample with zeros there, bit for bit. A record that is not finite where it counts
// comes last, when most are summed already.
template <class Real>
void compare(std::size_t stripe, int threads, std::size_t max_microbatch) {
  const ModelLayout layout(
      {{.name = "a", .shape = {kRows, kColumns}}, {.name = "b", .shape = {kRows, kColumns}}});
  const std::vector<CoordinateRange> ranges = stripes(stripe);
  auto given = drawn<Real>();
  std::vector<std::uint32_t> classes(kRecords);
  for (std::size_t i = 0; i < kRecords; ++i)
    classes[i] = i % 7 == 6 ? kNoRoute : static_cast<std::uint32_t>(i * i % 11 % kClasses);
  constexpr std::size_t kBad = kRecords - 2;
  classes[kBad] = 1;
  given[1][kBad * kElements] = std::numeric_limits<Real>::infinity();
  auto zeroed = given;
  for (const CoordinateRange& range : ranges)
    for (std::size_t i = 0; i < kRecords; ++i) {
      if (classes[i] != kNoRoute && kPermitted[classes[i] * 4 + range.part] != 0) continue;
      const auto at = static_cast<std::ptrdiff_t>(i * kElements + range.begin);
      const std::size_t n = range.end - range.begin;
      std::fill_n(given[range.tensor].begin() + at, n, std::numeric_limits<Real>::quiet_NaN());
      std::fill_n(zeroed[range.tensor].begin() + at, n, Real{0});
    }

  GradientSum sum(layout), expected(layout);
  for (std::size_t i = 0; i < sum.values().size(); ++i)
    sum.values()[i] = expected.values()[i] = static_cast<double>(i);
  ClipOptions options;
  options.threads = threads;
  options.max_microbatch = max_microbatch;
  options.nonfinite = Nonfinite::kZero;
  ClipPlan plan;
  plan.partition = partition(layout, Cut::kTensor);
  plan.clip = {100, 0.5};
  const RecordNorms theirs = clip_per_sample(
      layout, PerSampleGradients<Real>{kRecords, {zeroed[0], zeroed[1]}}, plan, options, expected);
  const Reach reach(layout, ranges, kPermitted, kClasses);
  const RecordNorms ours =
      clip_reached(layout, PerSampleGradients<Real>{kRecords, {given[0], given[1]}}, plan.partition,
                   reach, classes, options, decide, sum);
  EXPECT_EQ(ours.zeroed, theirs.zeroed);
  EXPECT_EQ(ours.zeroed[kBad], 1);
  EXPECT_EQ(ours.norms, theirs.norms);
  EXPECT_GT(std::ranges::count_if(ours.norms, [](double norm) { return norm > 100; }), 20);
  EXPECT_TRUE(std::ranges::equal(sum.values(), expected.values()))
      << stripe << " " << threads << " " << max_microbatch;
}

TEST(Reach, IsClippingWithZerosElsewhereBitForBit) {
  for (const std::size_t stripe : {1, 7, 32, 48, 64, 100, 4096, 16384, 20000})
    for (const int threads : {1, 2})
      for (const std::size_t max_microbatch : {5, 1000}) {
        compare<float>(stripe, threads, max_microbatch);
        compare<double>(stripe, threads, max_microbatch);
      }
}

TEST(Reach, HasTheSameBitsOnEveryTarget) {
  numerics::for_each_target([] {
    for (const std::size_t stripe : {7, 64}) compare<float>(stripe, 1, 1000);
  });
}

TEST(Reach, TellsNothingByANullMaskAndTheRestByBits) {
  const ModelLayout layout({{.name = "a", .shape = {40'000}}, {.name = "nobody's", .shape = {9}}});
  const CoordinateRange ranges[] = {
      {0, 0, 16'384, 0}, {0, 16'384, 16'390, 1}, {0, 16'390, 16'400, 0}, {0, 16'400, 40'000, 1}};
  constexpr std::uint8_t kTwo[] = {1, 1, 1, 0};
  const Reach reach(layout, ranges, kTwo, 2);
  const auto reaches = [&](std::uint32_t c, std::size_t i) {
    const std::uint32_t* words = reach.mask(c, 0, i / 16'384);
    return words != nullptr && (words[i % 16'384 / 32] >> (i % 32) & 1) != 0;
  };
  EXPECT_EQ(reach.mask(1, 0, 2), nullptr);
  EXPECT_EQ(reach.mask(0, 1, 0), nullptr);
  EXPECT_TRUE(reach.stripes(1, 0).empty());
  for (std::size_t i = 0; i < 40'000; ++i) {
    ASSERT_TRUE(reaches(0, i)) << i;
    ASSERT_EQ(reaches(1, i), i < 16'384 || (i >= 16'390 && i < 16'400)) << i;
  }
  std::size_t at = 0;
  for (std::size_t piece = 0; piece < 3; ++piece)
    for (const kernels::Stripe& stripe : reach.stripes(0, piece)) {
      EXPECT_EQ(stripe.begin, at);
      EXPECT_LE(stripe.end - stripe.begin, kernels::kTile);
      EXPECT_EQ(stripe.begin / 16'384, piece);
      EXPECT_EQ((stripe.end - 1) / 16'384, piece);
      at = stripe.end;
    }
  EXPECT_EQ(at, 40'000u);
}

}  // namespace
}  // namespace discreet::mechanism
