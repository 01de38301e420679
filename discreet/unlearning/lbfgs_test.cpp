#include "discreet/unlearning/lbfgs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "discreet/base/error.h"

namespace discreet::unlearning {
namespace {

using Vector = std::vector<double>;

// B built densely by the BFGS update of textbooks, from the newest `memory` pairs.
struct Dense {
  std::size_t d;
  Vector b;
  Vector times(const Vector& v) const {
    Vector out(d);
    for (std::size_t i = 0; i < d; ++i) {
      for (std::size_t j = 0; j < d; ++j) out[i] += b[i * d + j] * v[j];
    }
    return out;
  }
  void update(const Vector& s, const Vector& y) {
    const Vector bs = times(s);
    double sbs = 0, sy = 0;
    for (std::size_t i = 0; i < d; ++i) sbs += s[i] * bs[i], sy += s[i] * y[i];
    for (std::size_t i = 0; i < d; ++i) {
      for (std::size_t j = 0; j < d; ++j) b[i * d + j] += y[i] * y[j] / sy - bs[i] * bs[j] / sbs;
    }
  }
};

double norm(const Vector& v) {
  double sum = 0;
  for (const double e : v) sum += e * e;
  return std::sqrt(sum);
}

// The greatest eigenvalue of a positive definite map, by power iteration.
template <class Map>
double greatest(std::size_t d, const Map& map) {
  Vector v(d);
  for (std::size_t i = 0; i < d; ++i) v[i] = 1 + 0.37 * std::sin(double(i + 1));
  double value = 0;
  for (int i = 0; i < 20000; ++i) {
    Vector w = map(v);
    value = norm(w) / norm(v);
    const double n = norm(w);
    for (std::size_t k = 0; k < d; ++k) v[k] = w[k] / n;
  }
  return value;
}

TEST(Lbfgs, BoundsAreTheExtremeEigenvaluesOfTheDenseUpdate) {
  std::mt19937_64 engine(7);
  std::normal_distribution<double> normal;
  for (const auto& [d, count] : {std::pair{3, 1}, {3, 5}, {6, 3}, {12, 4}, {40, 10}}) {
    SCOPED_TRACE(d);
    const std::size_t n = d;
    Lbfgs lbfgs(n, 10);
    std::vector<std::pair<Vector, Vector>> pairs;
    for (int i = 0; i < count; ++i) {
      Vector s(n), y(n);
      for (std::size_t k = 0; k < n; ++k) {
        s[k] = normal(engine);
        y[k] = s[k] * (0.5 + double(k % 4));
      }
      ASSERT_TRUE(lbfgs.update(s, y));
      pairs.emplace_back(s, y);
    }
    const auto& [s, y] = pairs.back();
    double yy = 0, sy = 0;
    for (std::size_t k = 0; k < n; ++k) yy += y[k] * y[k], sy += s[k] * y[k];
    Dense dense{n, Vector(n * n)};
    for (std::size_t k = 0; k < n; ++k) dense.b[k * n + k] = yy / sy;
    for (const auto& [a, b] : pairs) dense.update(a, b);

    const auto bounds = lbfgs.bounds();
    ASSERT_TRUE(bounds);
    EXPECT_NEAR(bounds->C, greatest(n, [&](const Vector& v) { return dense.times(v); }),
                1e-6 * bounds->C);
    EXPECT_NEAR(1 / bounds->c, greatest(n, [&](const Vector& v) { return lbfgs.direction(v); }),
                1e-6 / bounds->c);
    // direction is -B^-1.
    Vector g(n, 1.0);
    const Vector back = dense.times(lbfgs.direction(g));
    for (std::size_t k = 0; k < n; ++k) EXPECT_NEAR(back[k], -1, 1e-9);
  }
}

TEST(Lbfgs, WithoutPairsItIsSteepestDescentAndHasNoBounds) {
  const Lbfgs lbfgs(2);
  EXPECT_FALSE(lbfgs.bounds());
  EXPECT_EQ(lbfgs.direction(Vector{1, -2}), (Vector{-1, 2}));
}

TEST(Lbfgs, TakesNoPairWithoutPositiveCurvature) {
  Lbfgs lbfgs(2);
  EXPECT_FALSE(lbfgs.update(Vector{1, 0}, Vector{-1, 0}));
  EXPECT_FALSE(lbfgs.update(Vector{0, 0}, Vector{0, 0}));
  EXPECT_FALSE(lbfgs.update(Vector{1, 0}, Vector{std::nan(""), 0}));
  EXPECT_EQ(lbfgs.pairs(), 0u);
  EXPECT_THROW(lbfgs.update(Vector{1}, Vector{1, 0}), Error);
  EXPECT_THROW(Lbfgs(0), Error);
}

}  // namespace
}  // namespace discreet::unlearning
