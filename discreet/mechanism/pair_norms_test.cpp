#include "discreet/mechanism/pair_norms.h"

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

// |sum_t g_t a_t^T|^2 element by element, and sum_t |a_t|^2 |g_t|^2, in long double.
template <class Real>
std::pair<double, double> exact(const OuterFactors<Real>& f, std::size_t i) {
  const Real* a = f.a + i * f.positions * f.inputs;
  const Real* g = f.g + i * f.positions * f.outputs;
  long double total = 0, terms = 0;
  for (std::size_t o = 0; o < f.outputs; ++o)
    for (std::size_t k = 0; k < f.inputs; ++k) {
      long double x = 0;
      for (std::size_t t = 0; t < f.positions; ++t) {
        const long double term =
            static_cast<long double>(g[t * f.outputs + o]) * a[t * f.inputs + k];
        x += term;
        terms += term * term;
      }
      total += x * x;
    }
  for (std::size_t o = 0; f.bias && o < f.outputs; ++o) {
    long double x = 0;
    for (std::size_t t = 0; t < f.positions; ++t) {
      x += g[t * f.outputs + o];
      terms += static_cast<long double>(g[t * f.outputs + o]) * g[t * f.outputs + o];
    }
    total += x * x;
  }
  return {static_cast<double>(total), static_cast<double>(terms)};
}

template <class Real>
class PairNorms : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(PairNorms, Reals);

TYPED_TEST(PairNorms, AreThoseOfTheGradientsAndNotBelow) {
  const double margin = sizeof(TypeParam) == 4 ? 0x1p-17 : 0x1p-45;
  const Team two = [](std::size_t n, const std::function<void(std::size_t)>& task) {
    std::thread other([&] {
      for (std::size_t k = 1; k < n; k += 2) task(k);
    });
    for (std::size_t k = 0; k < n; k += 2) task(k);
    other.join();
  };
  for (const std::size_t positions : {1, 2, 3, 4, 5, 7, 8, 64, 67})
    for (const auto& [inputs, outputs] :
         {std::pair<std::size_t, std::size_t>{1, 1}, {3, 5}, {8, 16}, {33, 70}, {1100, 5}}) {
      constexpr std::size_t kRecords = 3;
      auto a = normals<TypeParam>(kRecords * positions * inputs, 1);
      auto g = normals<TypeParam>(kRecords * positions * outputs, 2);
      // Positions of the second record nearly cancel; those of the third are all equal.
      for (std::size_t t = 1; t < positions; ++t)
        for (std::size_t k = 0; k < inputs; ++k) {
          a[(positions + t) * inputs + k] = (t % 2 == 1 ? -1 : 1) * a[positions * inputs + k];
          a[(2 * positions + t) * inputs + k] = a[2 * positions * inputs + k];
        }
      const OuterFactors<TypeParam> f{a.data(), g.data(), kRecords, positions, inputs, outputs,
                                      outputs % 2 == 1};
      std::vector<double> got(kRecords, 0.5), alone(kRecords, 0.5);
      add_outer_squares(f, &two, got);
      add_outer_squares<TypeParam>(f, nullptr, alone);
      EXPECT_EQ(got, alone);
      for (std::size_t i = 0; i < kRecords; ++i) {
        const auto [square, terms] = exact(f, i);
        EXPECT_GE(got[i] - 0.5, square * (1 - 1e-12) - 1e-13)
            << positions << " " << inputs << " " << i;
        EXPECT_LE(got[i] - 0.5, square + 3 * margin * (square + terms) + 1e-13)
            << positions << " " << inputs << " " << i;
      }
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
    }
}

}  // namespace
}  // namespace discreet::mechanism
