#include "discreet/accounting/sampling/truncated_poisson.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "discreet/accounting/sampling/subsampled_law_impl.h"
#include "discreet/base/error.h"

namespace discreet::accounting {
namespace {

double choose(int n, int k) {
  double c = 1;
  for (int i = 0; i < k; ++i) c = c * (n - i) / (i + 1);
  return c;
}

TEST(Truncation, MatchesTheBinomialSums) {
  for (const int n : {1, 2, 7, 40})
    for (const double q : {0.01, 0.3, 0.9})
      for (int capacity = 1; capacity <= n; ++capacity) {
        double tau = 0, kept = 0;
        for (int k = capacity; k <= n - 1; ++k) {
          const double mass = choose(n - 1, k) * std::pow(q, k) * std::pow(1 - q, n - 1 - k);
          tau += mass;
          kept += mass * q * capacity / (k + 1);
        }
        const Truncation t = truncation(q, std::uint64_t(capacity), std::uint64_t(n));
        EXPECT_LE(t.tau.lower, tau * (1 + 1e-11) + 1e-250);
        EXPECT_GE(t.tau.upper, tau * (1 - 1e-11));
        EXPECT_LE(t.tau.upper - t.tau.lower, 1e-11 * tau + 1e-250);
        if (tau > 1e-200) {
          EXPECT_NEAR(t.rate_upper, kept / tau, 1e-10);
        }
        EXPECT_LE(t.inclusion_lower, ((1 - tau) * q + kept) * (1 + 1e-12));
        EXPECT_GE(t.inclusion_lower, ((1 - tau) * q + kept) * (1 - 1e-10));
      }
}

TEST(Truncation, IsAccurateForLargeDataSets) {
  // Edgeworth approximation with continuity correction, four standard deviations above the mean.
  const Truncation t = truncation(0.01, 10398, 1000000);
  const double z = (10397.5 - 9999.99) / std::sqrt(999999 * 0.01 * 0.99);
  const double skewness = 0.98 / std::sqrt(999999 * 0.01 * 0.99);
  const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * M_PI);
  const double tail = 0.5 * std::erfc(z / std::sqrt(2)) + density * skewness / 6 * (z * z - 1);
  EXPECT_NEAR(t.tau.upper / tail, 1, 0.02);
  EXPECT_LE(t.tau.upper - t.tau.lower, 1e-9 * t.tau.upper);
}

// With room for all it is Poisson sampling, whose reference value is 1.82823667.
TEST(TruncatedPoisson, WithRoomForAllIsPoisson) {
  const Interval e =
      truncated_poisson_epsilon({0.01, 100000, 10000, 1, 1000}, 1e-5, Direction::kRemove, 1e-3);
  EXPECT_LE(e.lower, 1.82823667);
  EXPECT_GE(e.upper, 1.82823667);
  EXPECT_LE(e.upper - e.lower, 4e-3);
}

TEST(TruncatedPoisson, CostsMoreTheMoreIsTruncated) {
  double last = 0;
  for (const std::uint64_t capacity : {200, 150, 130, 110, 100}) {
    const Interval e =
        truncated_poisson_epsilon({0.01, capacity, 10000, 1, 100}, 1e-5, Direction::kRemove, 1e-2);
    EXPECT_LE(e.lower, e.upper);
    EXPECT_GE(e.upper, last * 0.99);
    last = e.upper;
  }
}

// One step in one dimension on four records, enumerated: every sampled set and every kept subset.
TEST(TruncatedPoisson, BoundsTheEnumeratedMechanism) {
  const int declared = 3, capacity = 2;
  const double q = 0.5, sigma = 1.0;
  const auto density = [&](double at, double others, double x, int records, int n) {
    double sum = 0;
    for (unsigned sampled = 0; sampled < (1u << records); ++sampled) {
      const int size = std::popcount(sampled);
      const double mass = std::pow(q, size) * std::pow(1 - q, records - size);
      const int kept = std::min(size, capacity);
      for (unsigned subset = 0; subset < (1u << records); ++subset) {
        if ((subset & ~sampled) || std::popcount(subset) != kept) continue;
        const bool has = records == n && (subset >> (n - 1) & 1);
        const double mean = has ? x + others * (kept - 1) : others * kept;
        const double z = (at - mean) / sigma;
        sum += mass / choose(size, kept) * std::exp(-0.5 * z * z) / (sigma * std::sqrt(2 * M_PI));
      }
    }
    return sum;
  };
  for (const Direction direction : {Direction::kRemove, Direction::kAdd}) {
    const double delta = 0.02;
    const Interval bound =
        truncated_poisson_epsilon({q, capacity, declared, sigma, 1}, delta, direction, 1e-2);
    double worst = 0;
    for (const int n : {declared, declared + 1})
      for (const double others : {-1.0, 0.0, 1.0})
        for (const double x : {-1.0, 1.0}) {
          // epsilon at delta by bisection of the enumerated hockey-stick divergence.
          std::vector<double> p, r;
          const double h = 0.05;
          for (double at = -9; at < 9; at += h) {
            p.push_back(density(at, others, x, n, n));
            r.push_back(density(at, others, x, n - 1, n));
          }
          double low = 0, high = 10;
          for (int i = 0; i < 40; ++i) {
            const double e = (low + high) / 2;
            double sum = 0;
            for (std::size_t k = 0; k < p.size(); ++k)
              sum += h * std::max(0.0, direction == Direction::kRemove ? p[k] - std::exp(e) * r[k]
                                                                       : r[k] - std::exp(e) * p[k]);
            (sum > delta ? low : high) = e;
          }
          worst = std::max(worst, low);
        }
    EXPECT_LE(worst, bound.upper + 1e-3);
    EXPECT_GE(worst, bound.lower - 1e-3);
  }
}

TEST(TruncatedPoisson, RefusesArgumentsOutsideTheirRange) {
  const TruncatedPoissonSteps good{0.1, 10, 50, 1, 1};
  const auto run = [](TruncatedPoissonSteps s, double delta = 1e-5, double width = 1e-2) {
    return truncated_poisson_epsilon(s, delta, Direction::kAdd, width);
  };
  EXPECT_NO_THROW(run(good));
  for (const double q : {0.0, 1.0, -1.0, double(NAN)}) {
    TruncatedPoissonSteps s = good;
    s.rate = q;
    EXPECT_THROW(run(s), Error);
  }
  TruncatedPoissonSteps s = good;
  s.capacity = 0;
  EXPECT_THROW(run(s), Error);
  s = good;
  s.records = 0;
  EXPECT_THROW(run(s), Error);
  s = good;
  s.sigma = NAN;
  EXPECT_THROW(run(s), Error);
  s = good;
  s.steps = 0;
  EXPECT_THROW(run(s), Error);
  EXPECT_THROW(run(good, 0), Error);
  EXPECT_THROW(run(good, 1e-5, 0), Error);
}

}  // namespace
}  // namespace discreet::accounting
