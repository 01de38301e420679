#include "discreet/mechanism/clip/ghost/pair_norms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

namespace discreet::mechanism {
namespace {

template <class Real>
std::vector<Real> normals(std::size_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<Real> out(n);
  for (Real& v : out) v = static_cast<Real>(normal(engine));
  return out;
}

// |sum_t g_t a_t^T|^2 element by element, and sum_t |a_t||g_t|, in long double.
template <class Real>
std::pair<double, double> exact(const OuterFactors<Real>& f, std::size_t i) {
  const Real* a = f.a + i * f.positions * f.inputs;
  const Real* g = f.g + i * f.positions * f.outputs;
  long double total = 0, lengths = 0;
  for (std::size_t o = 0; o < f.outputs; ++o)
    for (std::size_t k = 0; k < f.inputs; ++k) {
      long double x = 0;
      for (std::size_t t = 0; t < f.positions; ++t) {
        x += static_cast<long double>(g[t * f.outputs + o]) * a[t * f.inputs + k];
      }
      total += x * x;
    }
  for (std::size_t o = 0; f.bias && o < f.outputs; ++o) {
    long double x = 0;
    for (std::size_t t = 0; t < f.positions; ++t) x += g[t * f.outputs + o];
    total += x * x;
  }
  const auto square = [](const Real* row, std::size_t n) {
    long double out = 0;
    for (std::size_t k = 0; k < n; ++k) out += static_cast<long double>(row[k]) * row[k];
    return out;
  };
  for (std::size_t t = 0; t < f.positions; ++t)
    lengths += std::sqrt((square(a + t * f.inputs, f.inputs) + (f.bias ? 1 : 0)) *
                         square(g + t * f.outputs, f.outputs));
  return {static_cast<double>(total), static_cast<double>(lengths)};
}

template <class Real>
class PairNorms : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(PairNorms, Reals);

TYPED_TEST(PairNorms, AreThoseOfTheGradientsAndNotBelow) {
  const double margin = sizeof(TypeParam) == 4 ? 0x1p-17 : 0x1p-45;
  const double unit = std::numeric_limits<TypeParam>::epsilon() / 2;
  const numerics::Team two = [](std::size_t n, const std::function<void(std::size_t)>& task) {
    std::thread other([&] {
      for (std::size_t k = 1; k < n; k += 2) task(k);
    });
    for (std::size_t k = 0; k < n; k += 2) task(k);
    other.join();
  };
  for (const std::size_t positions : {1, 2, 3, 4, 5, 7, 8, 64, 67})
    for (const auto& [inputs, outputs] : {std::pair<std::size_t, std::size_t>{1, 1},
                                          {3, 5},
                                          {8, 16},
                                          {33, 70},
                                          {1100, 5},
                                          {9001, 2}}) {
      constexpr std::size_t kRecords = 3;
      auto a = normals<TypeParam>(kRecords * positions * inputs, 1);
      auto g = normals<TypeParam>(kRecords * positions * outputs, 2);
      // Positions of the second record nearly cancel; those of the third are all equal.
      for (std::size_t t = 1; t < positions; ++t)
        for (std::size_t k = 0; k < inputs; ++k) {
          a[(positions + t) * inputs + k] = (t % 2 == 1 ? -1 : 1) * a[positions * inputs + k];
          a[(2 * positions + t) * inputs + k] = a[2 * positions * inputs + k];
        }
      const OuterFactors<TypeParam> f{a.data(), g.data(), kRecords,        positions,
                                      inputs,   outputs,  outputs % 2 == 1};
      std::vector<double> got(kRecords, 0.5), alone(kRecords, 0.5);
      add_outer_squares(f, &two, got);
      add_outer_squares<TypeParam>(f, nullptr, alone);
      EXPECT_EQ(got, alone);
      for (std::size_t i = 0; i < kRecords; ++i) {
        const auto [square, lengths] = exact(f, i);
        EXPECT_GE(got[i] - 0.5, square * (1 - 1e-12) - 1e-13)
            << positions << " " << inputs << " " << i;
        // e of the header with 4 lanes at least; m where there is one position.
        const double e = positions == 1 ? 3 * margin
                                        : 2.1 * unit *
                                              (static_cast<double>(inputs + outputs) / 4 + 34 +
                                               (positions + 4) * (positions + 4));
        EXPECT_LE(got[i] - 0.5, square + e * lengths * lengths + 1e-13)
            << positions << " " << inputs << " " << i;
      }
    }
}

// Rows that are orthogonal except for rounding, and long: the worst case of a sum of products.
TYPED_TEST(PairNorms, AreNotBelowWhereEverythingCancels) {
  constexpr std::size_t kPositions = 40, kInputs = 700, kOutputs = 300;
  std::mt19937 random(9);
  for (int trial = 0; trial < 20; ++trial) {
    // Half of the positions cancel the others, except for the last bits.
    auto a = normals<TypeParam>(kPositions * kInputs, 100 + trial);
    auto g = normals<TypeParam>(kPositions * kOutputs, 200 + trial);
    constexpr std::size_t kHalf = kPositions / 2;
    for (std::size_t t = 0; t < kHalf; ++t) {
      for (std::size_t k = 0; k < kInputs; ++k)
        a[(kHalf + t) * kInputs + k] =
            -a[t * kInputs + k] *
            (random() % 2 == 0 ? 1 : 1 + std::numeric_limits<TypeParam>::epsilon());
      std::copy_n(&g[t * kOutputs], kOutputs, &g[(kHalf + t) * kOutputs]);
    }
    const OuterFactors<TypeParam> f{a.data(), g.data(), 1, kPositions, kInputs, kOutputs};
    std::vector<double> got(1, 0.0);
    add_outer_squares<TypeParam>(f, nullptr, got);
    EXPECT_GE(got[0], exact(f, 0).first);
  }
}

TYPED_TEST(PairNorms, AreNotBelowWhereProductsUnderflow) {
  const double least = std::numeric_limits<TypeParam>::denorm_min();
  for (const double scale : {0.4, 1.0, 3.0, 1e3, 1e6}) {
    const auto small = static_cast<TypeParam>(scale * std::sqrt(least));
    const auto large = static_cast<TypeParam>(1 / small / 64);
    const std::vector<TypeParam> a(3 * 50, small), g(3 * 50, large);
    const OuterFactors<TypeParam> f{a.data(), g.data(), 1, 3, 50, 50};
    std::vector<double> got(1, 0.0);
    add_outer_squares<TypeParam>(f, nullptr, got);
    EXPECT_GE(got[0], exact(f, 0).first) << scale;
  }
}

TYPED_TEST(PairNorms, OfRowsAreNotBelow) {
  const double margin = sizeof(TypeParam) == 4 ? 0x1p-17 : 0x1p-45;
  for (const std::size_t length : {1, 9, 1000, 70000}) {
    const auto rows = normals<TypeParam>(70 * length, 3);
    std::vector<double> got(70, 0.0);
    add_row_squares(rows.data(), length, std::span(got));
    for (std::size_t i = 0; i < got.size(); ++i) {
      long double square = 0;
      for (std::size_t k = 0; k < length; ++k)
        square += static_cast<long double>(rows[i * length + k]) * rows[i * length + k];
      EXPECT_GE(got[i], static_cast<double>(square));
      EXPECT_LE(got[i], static_cast<double>(square) * (1 + 3 * margin));
    }
  }
}

// Sums of which only rounding errors are left, or in which small terms are lost.
TYPED_TEST(PairNorms, OfSumsByPlaceAreNotBelow) {
  const double unit = std::numeric_limits<TypeParam>::epsilon() / 2;
  for (const std::size_t positions : {1, 2, 3, 50, 3000})
    for (const std::size_t width : {1, 37, 64})
      for (const int places : {0, 1, 5}) {
        constexpr std::size_t kRecords = 3;
        auto g = normals<TypeParam>(kRecords * positions * width, 6);
        std::vector<std::int64_t> at(kRecords * positions);
        for (std::size_t k = 0; k < at.size(); ++k)
          at[k] = places == 0 ? 0 : static_cast<std::int64_t>(k % places);
        for (std::size_t t = 0; t < positions; ++t)
          for (std::size_t k = 0; k < width; ++k) {
            // In the second record the first and the last row cancel. In the third, every row after
            // the first is too small to change the sum.
            if (t == 0 || t + 1 == positions)
              g[(positions + t) * width + k] =
                  static_cast<TypeParam>(t == 0 ? 3e3 / unit : -3e3 / unit);
            g[(2 * positions + t) * width + k] = t == 0 ? 1 : static_cast<TypeParam>(0.9 * unit);
          }
        const PlacedRows<TypeParam> f{g.data(), places == 0 ? nullptr : at.data(), kRecords,
                                      positions, width};
        std::vector<double> got(kRecords, 0.0);
        add_placed_squares<TypeParam>(f, nullptr, got);
        for (std::size_t i = 0; i < kRecords; ++i) {
          long double square = 0, terms = 0;
          for (int place = 0; place < std::max(1, places); ++place)
            for (std::size_t k = 0; k < width; ++k) {
              long double x = 0, size = 0;
              // Large ones first and last: by pairs, these sums are exact in long double.
              for (std::size_t t = 0; t < positions; ++t) {
                if (at[i * positions + t] != place) continue;
                size += std::fabs(static_cast<long double>(g[(i * positions + t) * width + k]));
                if (t != 0 && t + 1 != positions) x += g[(i * positions + t) * width + k];
              }
              const auto end = [&](std::size_t t) -> long double {
                return at[i * positions + t] == place ? g[(i * positions + t) * width + k] : 0;
              };
              x += end(0) + (positions > 1 ? end(positions - 1) : 0);
              square += x * x;
              terms += size * size;
            }
          EXPECT_GE(got[i], static_cast<double>(square * (1 - 1e-16L)))
              << positions << " " << width << " " << places << " " << i;
          const long double e = 16.0L * static_cast<long double>(positions + 8) * 0x1p-53L;
          const long double most = std::sqrt(square) + e * std::sqrt(terms);
          EXPECT_LE(got[i], static_cast<double>(most * most * (1 + 3 * 0x1p-17L)) + 1e-300);
        }
      }
}

TYPED_TEST(PairNorms, OfWhatIsNotFiniteAreNot) {
  const auto inf = std::numeric_limits<TypeParam>::infinity();
  for (const TypeParam bad : {inf, -inf, std::numeric_limits<TypeParam>::quiet_NaN()})
    for (const std::size_t positions : {1, 3, 9}) {
      auto a = normals<TypeParam>(2 * positions * 4, 4);
      auto g = normals<TypeParam>(2 * positions * 6, 5);
      for (int which = 0; which < 2; ++which) {
        auto x = a, y = g;
        (which == 0 ? x : y)[0] = bad;
        std::vector<double> got(2, 0.0);
        add_outer_squares<TypeParam>({x.data(), y.data(), 2, positions, 4, 6}, nullptr, got);
        EXPECT_FALSE(std::isfinite(got[0])) << positions << " " << which;
        EXPECT_TRUE(std::isfinite(got[1]));
      }
      std::vector<double> got(2 * positions, 0.0);
      a[0] = bad;
      add_row_squares(a.data(), 4, std::span(got));
      EXPECT_FALSE(std::isfinite(got[0]));
      EXPECT_TRUE(std::isfinite(got[1]));
      for (const bool placed : {false, true}) {
        const std::vector<std::int64_t> at(2 * positions, 7);
        std::vector<double> sums(2, 0.0);
        add_placed_squares<TypeParam>({a.data(), placed ? at.data() : nullptr, 2, positions, 4},
                                      nullptr, sums);
        EXPECT_FALSE(std::isfinite(sums[0]));
        EXPECT_TRUE(std::isfinite(sums[1]));
      }
    }
}

}  // namespace
}  // namespace discreet::mechanism
