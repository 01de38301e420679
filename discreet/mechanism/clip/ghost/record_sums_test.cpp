#include "discreet/mechanism/clip/ghost/record_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "discreet/base/error.h"

namespace discreet::mechanism {
namespace {

template <class Real>
std::vector<Real> uniforms(std::size_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<Real> out(n);
  for (Real& v : out) v = static_cast<Real>(uniform(engine));
  return out;
}

const numerics::Team kThreads = [](std::size_t n, const std::function<void(std::size_t)>& task) {
  std::vector<std::thread> threads;
  for (std::size_t k = 0; k < n; ++k) threads.emplace_back(task, k);
  for (std::thread& thread : threads) thread.join();
};

template <class Real>
class RecordSums : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(RecordSums, Reals);

TYPED_TEST(RecordSums, OfOuterProductsKeepToTheirBound) {
  struct Shape {
    std::size_t records, positions, inputs, outputs;
  };
  for (const Shape& s : {Shape{1, 1, 1, 1}, Shape{70, 1, 3, 5}, Shape{9, 4, 40, 7},
                         Shape{300, 1, 50, 40}, Shape{45, 7, 33, 150}, Shape{20, 3, 200, 64}}) {
    auto a = uniforms<TypeParam>(s.records * s.positions * s.inputs, 1);
    const auto g = uniforms<TypeParam>(s.records * s.positions * s.outputs, 2);
    auto weights = uniforms<double>(s.records, 3);
    if (s.records > 1) {  // what is not read may be anything
      weights[1] = 0;
      a[s.positions * s.inputs] = std::numeric_limits<TypeParam>::quiet_NaN();
    }
    const OuterFactors<TypeParam> factors{a.data(),    g.data(), s.records,
                                          s.positions, s.inputs, s.outputs};
    const bool narrow = std::is_same_v<TypeParam, float> && s.positions > 1 &&
                        std::min(s.inputs, s.outputs) >= kLeastBinary32Columns;
    const double rows = static_cast<double>(s.records * s.positions);
    const double allowed = narrow ? (kBinary32Rows + 3) * 0x1p-24 : (rows + 4) * 0x1p-53;
    for (const numerics::Team* team : {static_cast<const numerics::Team*>(nullptr), &kThreads}) {
      std::vector<double> sum(s.inputs * s.outputs, std::numeric_limits<double>::quiet_NaN());
      add_outer_sum(factors, weights, team, /*first=*/true, sum);
      std::vector<double> twice(s.inputs * s.outputs, 0.0);
      add_outer_sum(factors, weights, team, /*first=*/false, twice);
      EXPECT_EQ(twice, sum);
      add_outer_sum(factors, weights, team, /*first=*/false, twice);
      for (std::size_t o = 0; o < s.outputs; ++o)
        for (std::size_t k = 0; k < s.inputs; ++k) {
          long double exact = 0, terms = 0;
          for (std::size_t r = 0; r < s.records * s.positions; ++r) {
            const double weight = weights[r / s.positions];
            if (weight == 0) continue;
            // Scaled, a factor is rounded to its own precision.
            const long double term =
                static_cast<long double>(weight) * g[r * s.outputs + o] * a[r * s.inputs + k];
            exact += term;
            terms += std::fabs(term);
          }
          const std::size_t at = o * s.inputs + k;
          EXPECT_NEAR(sum[at], static_cast<double>(exact), allowed * static_cast<double>(terms));
          EXPECT_NEAR(twice[at], 2 * static_cast<double>(exact),
                      2 * allowed * static_cast<double>(terms));
        }
    }
  }
}

TYPED_TEST(RecordSums, OfRowsAreOfBinary64) {
  for (const std::size_t width : {1, 7, 64, 3000})
    for (const std::size_t positions : {1, 3})
      for (const bool placed : {false, true}) {
        constexpr std::size_t kRecords = 23, kPlaces = 5;
        auto g = uniforms<TypeParam>(kRecords * positions * width, 4);
        auto weights = uniforms<double>(kRecords, 5);
        weights[2] = 0;
        g[2 * positions * width] = std::numeric_limits<TypeParam>::infinity();
        std::vector<std::int64_t> places(kRecords * positions);
        for (std::size_t r = 0; r < places.size(); ++r)
          places[r] = static_cast<std::int64_t>(r * r % kPlaces);
        const PlacedRows<TypeParam> rows{g.data(), placed ? places.data() : nullptr, kRecords,
                                         positions, width};
        std::vector<long double> exact(placed ? kPlaces * width : width), terms(exact.size());
        for (std::size_t r = 0; r < kRecords * positions; ++r)
          for (std::size_t j = 0; j < width && r / positions != 2; ++j) {
            const std::size_t at = (placed ? static_cast<std::size_t>(places[r]) * width : 0) + j;
            const long double term =
                static_cast<long double>(weights[r / positions]) * g[r * width + j];
            exact[at] += term;
            terms[at] += std::fabs(term);
          }
        for (const numerics::Team* team :
             {static_cast<const numerics::Team*>(nullptr), &kThreads}) {
          std::vector<double> sum(exact.size(), 1.0);
          add_placed_sum(rows, weights, team, sum);
          for (std::size_t k = 0; k < sum.size(); ++k)
            EXPECT_NEAR(sum[k], static_cast<double>(1 + exact[k]),
                        80 * 0x1p-53 * static_cast<double>(1 + terms[k]));
        }
        if (!placed) continue;
        places.back() = kPlaces;
        std::vector<double> sum(exact.size());
        EXPECT_THROW(add_placed_sum(rows, weights, nullptr, sum), Error);
        EXPECT_EQ(sum, std::vector<double>(exact.size()));
      }
}

// The term of a record depends on that record alone: other records change only binary64 roundings.
TEST(RecordSums32, HaveTermsThatDependOnNoOtherRecord) {
  for (const std::size_t positions : {2, 5, 32, 50, 64, 100, 256, 300, 700}) {
    constexpr std::size_t kInputs = 40, kOutputs = 50;
    const std::size_t records = 1500 / positions + 2;
    const auto a = uniforms<float>(records * positions * kInputs, 7);
    const auto g = uniforms<float>(records * positions * kOutputs, 8);
    const auto sum = [&](std::size_t first, std::size_t last) {
      const std::vector<double> weights(last - first, 1.0);
      std::vector<double> out(kInputs * kOutputs);
      add_outer_sum(OuterFactors<float>{a.data() + first * positions * kInputs,
                                        g.data() + first * positions * kOutputs, last - first,
                                        positions, kInputs, kOutputs},
                    weights, nullptr, true, out);
      return out;
    };
    const auto all = sum(0, records), rest = sum(1, records), alone = sum(0, 1);
    for (std::size_t k = 0; k < all.size(); ++k)
      ASSERT_NEAR(all[k] - rest[k], alone[k], 1e-12) << positions;
  }
}

// 512 records that differ by a few per mille: whichever is left out, the sum moves by its own term.
// In binary32 it would lose 1e-4 of that.
TEST(RecordSums32, MoveByTheTermOfOneOfManyParallelRecords) {
  constexpr std::size_t kRecords = 512, kInputs = 40, kOutputs = 50;
  std::mt19937 engine(6);
  std::normal_distribution<double> normal;
  std::vector<float> a(kRecords * kInputs), g(kRecords * kOutputs);
  for (float& v : a) v = static_cast<float>(0.7 * (1 + 3e-3 * normal(engine)));
  for (float& v : g) v = static_cast<float>(0.9 * (1 + 3e-3 * normal(engine)));
  const std::vector<double> weights(kRecords, 1.0);
  const auto sum = [&](std::size_t first) {
    std::vector<double> out(kInputs * kOutputs);
    add_outer_sum(OuterFactors<float>{a.data() + first * kInputs, g.data() + first * kOutputs,
                                      kRecords - first, 1, kInputs, kOutputs},
                  std::span(weights).subspan(first), nullptr, true, out);
    return out;
  };
  const auto all = sum(0), rest = sum(1);
  for (std::size_t k = 0; k < all.size(); ++k)
    EXPECT_NEAR(all[k] - rest[k], double{a[k % kInputs]} * g[k / kInputs], 1e-12);
}

}  // namespace
}  // namespace discreet::mechanism
