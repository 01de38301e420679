#include "discreet/accounting/sampling/shuffle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "discreet/base/error.h"

namespace discreet::accounting {
namespace {

double normal_tail(double x) { return 0.5 * std::erfc(x / std::sqrt(2)); }
double gaussian_delta(double mu, double e) {
  return normal_tail(e / mu - mu / 2) - std::exp(e) * normal_tail(e / mu + mu / 2);
}

TEST(Shuffle, MatchesTheReferenceRows) {
  const struct {
    ShuffledEpochs epochs;
    Interval known;
  } rows[] = {{{.5, 10000, 1}, {10.994, 10.998}},
              {{1, 10000, 1}, {1.895, 4.887}},
              {{.5, 10000, 10}, {32.86, 49.32}}};
  for (const auto& row : rows) {
    const Interval e = shuffle_zero_out_epsilon(row.epochs, 1e-6);
    EXPECT_GE(e.lower, row.known.lower - 6e-3);
    EXPECT_LE(e.lower, row.known.lower + 2e-2)
        << "a finer search for the threshold gains this much";
    EXPECT_NEAR(e.upper, row.known.upper, 6e-3);
  }
}

TEST(Shuffle, UpperEndIsTheGaussianOfAPublicPermutation) {
  for (const double sigma : {0.05, 0.5, 5.0, 100.0})
    for (const std::uint64_t epochs : {1, 10, 1000}) {
      const double upper = shuffle_zero_out_epsilon({sigma, 10, epochs}, 1e-5).upper;
      const double mu = std::sqrt(double(epochs)) / sigma;
      if (upper == 0) {
        EXPECT_LE(gaussian_delta(mu, 0), 1e-5);
        continue;
      }
      if (mu > 15) continue;  // the oracle's e^epsilon leaves binary64
      EXPECT_LE(gaussian_delta(mu, upper), 1e-5 * (1 + 1e-9));
      EXPECT_GE(gaussian_delta(mu, upper * (1 - 1e-6)), 1e-5 * (1 - 1e-9));
    }
  // Ten epochs at sigma = 5, delta = 1e-5: 2.59 for zero-out, 5.76 for replace-one.
  EXPECT_NEAR(shuffle_zero_out_epsilon({5, 100, 10}, 1e-5).upper, 2.59, 0.005);
  EXPECT_NEAR(shuffle_replace_one_epsilon({5, 100, 10}, 1e-5).upper, 5.76, 0.005);
}

// One batch is a Gaussian mechanism: the attack must stay below what is exact.
TEST(Shuffle, LowerEndNeverExceedsTheUpper) {
  for (const std::uint64_t batches : {1, 2, 100, 100000})
    for (const std::uint64_t epochs : {1, 5, 300, 100000})
      for (const double sigma : {0.3, 1.0, 8.0}) {
        const Interval z = shuffle_zero_out_epsilon({sigma, batches, epochs}, 1e-6);
        const Interval r = shuffle_replace_one_epsilon({sigma, batches, epochs}, 1e-6);
        EXPECT_LE(z.lower, z.upper);
        EXPECT_LE(r.lower, r.upper);
        EXPECT_LE(z.upper, r.upper);
        if (batches == 1 && epochs == 1) {
          EXPECT_GE(z.lower, 0.5 * z.upper);
        }
      }
}

// The attack, carried out. With a new seed, a false alarm has probability below 1e-6.
TEST(Shuffle, LowerEndIsAttainedBySimulation) {
  const double sigma = 0.5, delta = 0.3;
  const int batches = 50, trials = 200000;
  const double lower = shuffle_zero_out_epsilon({sigma, 50, 1}, delta).lower;
  ASSERT_GT(lower, 0.5);
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal(0, sigma);
  double best = 0;
  std::vector<double> largest[2];
  for (const int shift : {1, 2})
    for (int i = 0; i < trials; ++i) {
      double top = shift + normal(random);
      for (int b = 1; b < batches; ++b) top = std::max(top, normal(random));
      largest[shift - 1].push_back(top);
    }
  for (double threshold = 1; threshold < 4; threshold += 0.02) {
    double p[2];
    for (int s = 0; s < 2; ++s) {
      int count = 0;
      for (const double x : largest[s]) count += x > threshold;
      p[s] = double(count) / trials;
    }
    const double error = 5 * std::sqrt(p[0] / trials) / std::max(p[0], 1e-9);
    if (p[1] > delta && p[0] > 1e-3) best = std::max(best, std::log((p[1] - delta) / p[0]) + error);
  }
  EXPECT_GE(best, lower - 0.02);
}

TEST(Shuffle, RefusesArgumentsOutsideTheirRange) {
  EXPECT_THROW(shuffle_zero_out_epsilon({0, 10, 1}, 1e-5), Error);
  EXPECT_THROW(shuffle_zero_out_epsilon({NAN, 10, 1}, 1e-5), Error);
  EXPECT_THROW(shuffle_zero_out_epsilon({1, 0, 1}, 1e-5), Error);
  EXPECT_THROW(shuffle_zero_out_epsilon({1, 10, 0}, 1e-5), Error);
  EXPECT_THROW(shuffle_replace_one_epsilon({1, 10, 1}, 0), Error);
  EXPECT_THROW(shuffle_replace_one_epsilon({1, 10, 1}, NAN), Error);
}

}  // namespace
}  // namespace discreet::accounting
