#include "discreet/mechanism/clip_ranges_impl.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace discreet::mechanism {
namespace {

constexpr std::size_t kRows = 96, kColumns = 256, kRecords = 90;

// Half of each row belongs to part 0, the other to part 1, in stripes of `stripe` columns.
std::vector<CoordinateRange> stripes(std::size_t stripe) {
  std::vector<CoordinateRange> out;
  for (const std::uint32_t part : {0u, 1u})
    for (std::size_t tensor = 0; tensor < 2; ++tensor)
      for (std::size_t at = part * stripe; at < kRows * kColumns; at += 2 * stripe)
        out.push_back({tensor, at, std::min(at + stripe, kRows * kColumns), part});
  return out;
}

// Records of class 1 reach part 0 only: their other values are not numbers, and must not be read.
// A record that is not finite where it may be read comes last, when most are summed already.
template <class Real>
void compare(std::size_t stripe, int threads) {
  const ModelLayout layout({{.name = "a", .shape = {kRows, kColumns}},
                            {.name = "b", .shape = {kRows, kColumns}}});
  const std::vector<CoordinateRange> ranges = stripes(stripe);
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<std::vector<Real>> x(2, std::vector<Real>(kRecords * kRows * kColumns));
  for (auto& tensor : x)
    for (Real& v : tensor) v = static_cast<Real>(normal(random));
  std::vector<std::uint32_t> classes(kRecords);
  for (std::size_t i = 0; i < kRecords; ++i) classes[i] = i % 3 == 0 ? 1 : 0;
  const auto value = [&](const CoordinateRange& range, std::size_t record) {
    return &x[range.tensor][record * kRows * kColumns + range.begin];
  };
  for (const CoordinateRange& range : ranges)
    for (std::size_t i = 0; i < kRecords; ++i)
      if (classes[i] == 1 && range.part == 1)
        std::fill_n(value(range, i), range.end - range.begin,
                    std::numeric_limits<Real>::quiet_NaN());
  const std::size_t bad = kRecords - 2;
  *value(ranges.back(), bad) = std::numeric_limits<Real>::infinity();
  ASSERT_EQ(classes[bad], 0u);

  const auto scale = [](std::size_t record, std::size_t part) {
    return 1.0 / static_cast<double>(record + part + 1);
  };
  GradientSum sum(layout), expected(layout);
  for (std::size_t i = 0; i < sum.values().size(); ++i)
    sum.values()[i] = expected.values()[i] = static_cast<double>(i);
  std::vector<double> squares(kRecords * 2);
  for (const CoordinateRange& range : ranges)
    for (std::size_t i = 0; i < kRecords; ++i) {
      if (i == bad || (classes[i] == 1 && range.part == 1)) continue;
      for (std::size_t k = range.begin; k < range.end; ++k) {
        const double v = static_cast<double>(value(range, i)[k - range.begin]);
        const double term = scale(i, range.part) * v;
        expected.tensor(range.tensor)[k] += term;
        squares[i * 2 + range.part] += v * v;
      }
    }

  ClipOptions options;
  options.threads = threads;
  options.nonfinite = Nonfinite::kZero;
  const std::vector<std::uint8_t> permitted = {1, 1, 1, 0};
  const RecordNorms norms = clip_ranges<Real>(
      layout, {kRecords, {x[0], x[1]}}, ranges, {classes, permitted, 2}, options,
      [&](std::size_t first, std::size_t end, RecordNorms& n) {
        for (std::size_t i = first; i < end; ++i)
          for (std::size_t part = 0; part < 2; ++part)
            n.scales[i * 2 + part] =
                n.zeroed[i] != 0 || (classes[i] == 1 && part == 1) ? 0 : scale(i, part);
      },
      sum);
  for (std::size_t i = 0; i < kRecords; ++i) {
    EXPECT_EQ(norms.zeroed[i], i == bad ? 1 : 0);
    for (std::size_t part = 0; part < 2; ++part) {
      const double norm = std::sqrt(squares[i * 2 + part]);
      EXPECT_GE(norms.norm(i, part), norm * (1 - 1e-13)) << i;
      EXPECT_LE(norms.norm(i, part), norm * (1 + 1e-13)) << i;
    }
  }
  // The same operations in the same order: every bit.
  EXPECT_TRUE(std::ranges::equal(sum.values(), expected.values())) << stripe << " " << threads;
}

TEST(ClipRanges, AreWhatRecordsMayReachBitForBit) {
  for (const std::size_t stripe : {1, 7, 32, 48, 64, 100, 4096})
    for (const int threads : {1, 2}) {
      compare<float>(stripe, threads);
      compare<double>(stripe, threads);
    }
}

}  // namespace
}  // namespace discreet::mechanism
