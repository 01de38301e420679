#include "discreet/accounting/sampling/shuffle_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "discreet/base/error.h"

namespace discreet::accounting {
namespace {

std::vector<long double> binomial(int n, long double p) {
  std::vector<long double> law{1};
  for (int i = 0; i < n; ++i) {
    std::vector<long double> next(law.size() + 1, 0);
    for (std::size_t k = 0; k < law.size(); ++k) {
      next[k] += law[k] * (1 - p);
      next[k + 1] += law[k] * p;
    }
    law = next;
  }
  return law;
}

// The pair of the header, by enumeration of (C, A, D).
double brute_force_delta(int n, double epsilon0, double epsilon) {
  const long double p = 1 / (1 + std::exp(-static_cast<long double>(epsilon0)));
  const auto clones = binomial(n - 1, std::exp(-static_cast<long double>(epsilon0)));
  long double delta = 0;
  for (int c = 0; c < n; ++c) {
    const auto half = binomial(c, 0.5L);
    for (int a = 0; a <= c + 1; ++a) {
      const long double with = a >= 1 ? half[static_cast<std::size_t>(a - 1)] : 0;
      const long double without = a <= c ? half[static_cast<std::size_t>(a)] : 0;
      const long double first = p * with + (1 - p) * without;
      const long double second = (1 - p) * with + p * without;
      delta += clones[static_cast<std::size_t>(c)] *
               std::max(0.0L, first - std::exp(static_cast<long double>(epsilon)) * second);
    }
  }
  return static_cast<double>(delta);
}

TEST(ShuffleModel, EnclosesTheEnumeratedPair) {
  for (const int n : {1, 2, 7, 40, 150}) {
    for (const double epsilon0 : {0.1, 1.0, 3.0}) {
      for (const double part : {0.0, 0.2, 0.6, 0.9}) {
        const double epsilon = part * epsilon0;
        const double exact = brute_force_delta(n, epsilon0, epsilon);
        const Interval delta =
            shuffle_pair_delta({static_cast<std::uint64_t>(n), epsilon0}, epsilon);
        SCOPED_TRACE(testing::Message() << n << " " << epsilon0 << " " << epsilon);
        EXPECT_LE(delta.lower, exact * (1 + 1e-14));
        EXPECT_GE(delta.upper, exact * (1 - 1e-14));
        EXPECT_LE(delta.upper - delta.lower, 1e-8 * exact + 1e-25);
      }
    }
  }
}

TEST(ShuffleModel, MatchesPublishedValues) {
  const ShuffledRecords records{100000, 4};
  EXPECT_NEAR(shuffle_epsilon_closed_form(records, 1e-6), 0.5378040, 1e-7);
  const Interval epsilon = shuffle_epsilon(records, 1e-6);
  EXPECT_GE(epsilon.lower, 0.1675);
  EXPECT_LE(epsilon.upper, 0.1728);
  EXPECT_LE(epsilon.upper - epsilon.lower, 1e-8);
}

TEST(ShuffleModel, NumericNeverExceedsTheClosedForm) {
  for (const std::uint64_t n : {1000U, 100000U, 3000000U}) {
    for (const double epsilon0 : {0.5, 2.0, 5.0}) {
      for (const double delta : {1e-4, 1e-8}) {
        const ShuffledRecords records{n, epsilon0};
        const double upper = shuffle_epsilon(records, delta).upper;
        EXPECT_LE(upper, shuffle_epsilon_closed_form(records, delta));
        EXPECT_LE(shuffle_pair_delta(records, upper).upper, delta);
      }
    }
  }
}

TEST(ShuffleModel, ClosedFormClaimsNothingOutsideItsCondition) {
  EXPECT_EQ(shuffle_epsilon_closed_form({100, 3}, 1e-6), 3);
}

// Shuffled randomized response: the analyst sees how many ones there are. With a leak, each record
// shows itself (and its owner's world) with probability delta0.
double exact_response_delta(int n, double epsilon0, double epsilon, double delta0) {
  const long double flip = 1 / (1 + std::exp(static_cast<long double>(epsilon0)));
  // The others all hold 0.
  const auto others = binomial(n - 1, flip);
  long double delta = 0;
  for (int ones = 0; ones <= n; ++ones) {
    const long double stay = ones < n ? others[static_cast<std::size_t>(ones)] : 0;
    const long double up = ones > 0 ? others[static_cast<std::size_t>(ones - 1)] : 0;
    const long double first = (1 - flip) * up + flip * stay;
    const long double second = flip * up + (1 - flip) * stay;
    delta += std::max(0.0L, first - std::exp(static_cast<long double>(epsilon)) * second);
  }
  return static_cast<double>(delta0 + (1 - delta0) * delta);
}

TEST(ShuffleModel, DominatesRandomizedResponse) {
  for (const int n : {10, 200}) {
    for (const double epsilon0 : {0.5, 2.0}) {
      for (const double epsilon : {0.05, 0.3}) {
        const ShuffledRecords pure{static_cast<std::uint64_t>(n), epsilon0};
        const ShuffledRecords leaky{static_cast<std::uint64_t>(n), epsilon0, 1e-5};
        const double bound = shuffle_pair_delta(pure, epsilon).upper;
        EXPECT_GE(bound, exact_response_delta(n, epsilon0, epsilon, 0));
        EXPECT_GE(bound + shuffle_delta_charge(leaky, epsilon),
                  exact_response_delta(n, epsilon0, epsilon, 1e-5));
      }
    }
  }
}

TEST(ShuffleModel, ChargesDeltaZeroOfTheLocalRandomizer) {
  const ShuffledRecords pure{100000, 4};
  const ShuffledRecords noisy{100000, 4, 1e-12};
  const double charge = shuffle_delta_charge(noisy, 0.2);
  EXPECT_NEAR(charge, (1 + std::exp(0.2)) * (1 + 2 * 99999 * std::exp(-4.0)) * 1e-12, 1e-20);
  EXPECT_GT(shuffle_epsilon(noisy, 1e-6).upper, shuffle_epsilon(pure, 1e-6).upper);
  EXPECT_GE(shuffle_epsilon_closed_form(noisy, 1e-6), shuffle_epsilon_closed_form(pure, 1e-6));
  // Too much to charge: epsilon0 still holds at delta >= delta0, nothing below it.
  EXPECT_EQ(shuffle_epsilon({100000, 4, 1e-7}, 1e-6).upper, 4);
  EXPECT_THROW(shuffle_epsilon({100000, 4, 1e-5}, 1e-6), Error);
}

// The mode of Bin(n-1, e^-epsilon0) is n-1, although (n-1+1) e^-epsilon0 rounds to n.
TEST(ShuffleModel, HoldsForNearlyPerfectRandomizers) {
  for (const double epsilon0 : {1e-8, 1e-15, 1e-17, 1e-25}) {
    const Interval delta = shuffle_pair_delta({100, epsilon0, 0}, 0);
    // All others are clones: (2p - 1) b(49) = epsilon0/2 Pr[Bin(99, 1/2) = 49].
    const double expected = 0.5 * epsilon0 * 0.079589237387178;
    EXPECT_GE(delta.upper, expected * (1 - 1e-7));
    EXPECT_LE(delta.upper, expected * (1 + 1e-7)) << epsilon0;
    EXPECT_GE(delta.lower, expected * (1 - 1e-7)) << epsilon0;
  }
}

TEST(ShuffleModel, RefusesNonsense) {
  // Counting up to 2^60 one by one in binary64 would never end.
  EXPECT_THROW(shuffle_pair_delta({std::uint64_t{1} << 60, 1, 0}, 0.1), Error);
  EXPECT_THROW(shuffle_epsilon({0, 1}, 1e-6), Error);
  EXPECT_THROW(shuffle_epsilon({10, NAN}, 1e-6), Error);
  EXPECT_THROW(shuffle_epsilon({10, -1}, 1e-6), Error);
  EXPECT_THROW(shuffle_epsilon({10, 1, NAN}, 1e-6), Error);
  EXPECT_THROW(shuffle_epsilon({10, 1}, 0), Error);
  EXPECT_THROW(shuffle_pair_delta({10, 1}, NAN), Error);
}

}  // namespace
}  // namespace discreet::accounting
