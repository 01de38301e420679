#include "discreet/accounting/pld.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "discreet/accounting/transform/transform.h"
#include "discreet/base/error_testing.h"

namespace discreet::accounting {
namespace {

constexpr Adjacency kAdjacency = Adjacency::kAddRemove;

Event step(double rate, double sigma) { return Event(Gaussian{sigma}, Poisson{rate}, kAdjacency); }

Composition single(double q, double sigma, std::uint64_t count) {
  return {{{q, sigma, count}}, {}};
}

struct Row {
  double q, sigma;
  std::uint64_t steps;
  double delta, epsilon, digits;
};

TEST(Pld, ReproducesThePublishedTable) {
  const Row rows[] = {
      {.04, 1.5, 2249, 1e-5, 6.76704411, 1e-8},
      {.05, 1.5, 100, 1e-6, 1.94373555, 1e-8},
      {.05, 1.5, 1000, 1e-6, 6.19969168, 1e-8},
      {.05, 3, 20000, 1e-6, 13.95060947, 1e-8},
      {.2, .8, 100, 1e-6, 24.32262020, 1e-8},
      {.001, .8, 20000, 1e-6, 1.28592271, 1e-8},
      {.001, 2, 50000, 1e-6, .48131484, 1e-8},
      {.01, .7, 120, 1e-5, 2.46123769, 1e-8},
      {.1, 3, 512, 1e-6, 3.76968381, 1e-8},
      {.01, 1, 1000, 1e-5, 1.82823667, 1e-8},
      {.01, .8, 10000, 1e-5, 10.05363477, 1e-8},
      {256 / 60000., 1.1, 14040, 1e-5, 2.37955452, 1e-8},
      {.001, .6, 100000, 1e-6, 6.96084388, 1e-8},
      {.05, 2, 5000, 1e-6, 10.35402849, 1e-8},
      {.01, 1, 1000, 1e-15, 4.85453775, 1e-8},
      {.3, 10, 2000, 1e-9, 8.6228151, 1e-7},
      {.001, 2, 100, 1e-5, .0146294031, 1e-9},
      {.001, 1, 1000000, 1e-8, 7.86451794, 2e-8},
      {1, 1, 1, .1269367375, 1, 1e-8},
  };
  for (const Row& row : rows) {
    const Certified result = certified_epsilon(single(row.q, row.sigma, row.steps), row.delta);
    EXPECT_LE(result.value.lower, row.epsilon + row.digits) << row.q << ' ' << row.sigma;
    EXPECT_GE(result.value.upper, row.epsilon - row.digits) << row.q << ' ' << row.sigma;
    EXPECT_LE(result.error(), 1e-3 * std::max(1.0, row.epsilon));
    if (row.q < 1) {
      EXPECT_EQ(result.worst, Direction::kRemove);
    }
  }
  const Certified delta = certified_delta(single(.2, .5, 3), 1);
  EXPECT_LE(delta.value.lower, .1559328 + 1e-7);
  EXPECT_GE(delta.value.upper, .1559328 - 1e-7);
}

TEST(Pld, PathsOverlapOnARandomSet) {
  // Fixed seed: no false alarms. Half of the draws are in the contour's range, half outside.
  std::mt19937_64 random(20);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int trial = 0; trial < 40; ++trial) {
    const bool small = trial % 2;
    const double q = std::pow(10, -3.5 + 3.4 * uniform(random));
    const double sigma = std::pow(10, -.4 + 1.4 * uniform(random));
    const auto steps = static_cast<std::uint64_t>(small ? 1 + 12 * uniform(random)
                                                        : std::pow(10, 1 + 3 * uniform(random)));
    const double delta = std::pow(10, -12 + 10 * uniform(random));
    const Certified result = verified_epsilon(single(q, sigma, steps), delta);
    EXPECT_LE(result.value.lower, result.value.upper) << q << ' ' << sigma << ' ' << steps;
    EXPECT_LE(result.error(), 2e-3 * std::max(result.value.upper, 1e-3))
        << q << ' ' << sigma << ' ' << steps << ' ' << delta << ' ' << to_string(result.path);
  }
}

TEST(Pld, PathsOverlapOnMixtures) {
  const Composition mixtures[] = {
      {{{.01, 1, 500}, {.02, 1.4, 300}, {1, 30, 5}}, {}},
      {{{.01, 1, 500}, {.02, 1.4, 300}}, {{.2, 1e-8, 2}}},
      {{{.1, 2, 3}, {.5, 4, 2}}, {{.05, 0, 4}}},
  };
  for (const Composition& steps : mixtures) {
    const Certified result = verified_epsilon(steps, 1e-5);
    EXPECT_LT(result.error(), 5e-3);
  }
}

TEST(Pld, IsMonotoneInEveryParameter) {
  const auto upper = [](double q, double sigma, std::uint64_t steps, double delta) {
    return certified_epsilon(single(q, sigma, steps), delta).value;
  };
  const Interval base = upper(.02, 1.2, 400, 1e-6);
  EXPECT_GT(base.lower, upper(.02, 1.21, 400, 1e-6).upper);
  EXPECT_GT(base.lower, upper(.0198, 1.2, 400, 1e-6).upper);
  EXPECT_GT(base.lower, upper(.02, 1.2, 396, 1e-6).upper);
  EXPECT_GT(base.lower, upper(.02, 1.2, 400, 1.1e-6).upper);
  const Interval few = upper(.02, 1.2, 3, 1e-6);
  EXPECT_GT(few.lower, upper(.02, 1.3, 3, 1e-6).upper);
  EXPECT_GT(few.lower, upper(.018, 1.2, 3, 1e-6).upper);
  EXPECT_GT(few.lower, upper(.02, 1.2, 2, 1e-6).upper);
  EXPECT_GT(few.lower, upper(.02, 1.2, 3, 1.5e-6).upper);
}

TEST(Pld, KnowsThatAddAndRemoveDiffer) {
  const Composition steps = single(.01, 1, 1000);
  const auto remove = contour_epsilon(steps, Direction::kRemove, 1e-5);
  const auto add = contour_epsilon(steps, Direction::kAdd, 1e-5);
  ASSERT_TRUE(remove && add);
  EXPECT_GT(remove->value.lower, 1.8282);
  EXPECT_LT(add->value.upper, 1.4167);
}

TEST(Pld, IsTheWorseDirectionWhetherOrNotABoundDecidesTheOther) {
  // Far apart at low noise, where Chernoff's bound decides; together at high noise, where it
  // cannot.
  int decided = 0, open = 0;
  for (const double sigma : {.7, 1., 2., 6., 30.}) {
    for (const double q : {.003, .02, .3}) {
      const Composition steps{{{q, sigma, 400}, {q, 1.1 * sigma, 600}}, {{.01, 1e-9, 2}}};
      const double delta = 1e-6;
      const auto remove = contour_epsilon(steps, Direction::kRemove, delta);
      const auto add = contour_epsilon(steps, Direction::kAdd, delta);
      if (!remove || !add) continue;
      const bool bound = remove->value.lower > 0 &&
                         contour_holds(steps, Direction::kAdd, remove->value.lower, delta);
      ++(bound ? decided : open);
      const Certified both = certified_epsilon(steps, delta);
      EXPECT_EQ(both.value.lower, std::max(remove->value.lower, add->value.lower));
      EXPECT_EQ(both.value.upper, std::max(remove->value.upper, add->value.upper));
      EXPECT_EQ(both.worst, Direction::kRemove);
      const double epsilon = both.value.upper;
      const auto high = contour_delta(steps, Direction::kRemove, epsilon);
      const auto low = contour_delta(steps, Direction::kAdd, epsilon);
      if (!high || !low) continue;
      const Certified curve = certified_delta(steps, epsilon);
      EXPECT_EQ(curve.value.lower, std::max(high->value.lower, low->value.lower));
      EXPECT_EQ(curve.value.upper, std::max(high->value.upper, low->value.upper));
    }
  }
  EXPECT_GE(decided, 4);
  EXPECT_GE(open, 4);
}

TEST(PldAccountant, HasTheSameBitsInAnyOrder) {
  PldAccountant forwards(kAdjacency), backwards(kAdjacency);
  const std::pair<Event, std::uint64_t> events[] = {
      {step(.01, 1), 300},
      {step(.02, 1.5), 100},
      {step(.01, 1.25), 50},
      {Event(Guarantee{.1, 1e-9}, NoSampling{}, kAdjacency), 1}};
  for (int i = 0; i < 4; ++i) forwards.add(events[i].first, events[i].second);
  for (int i = 4; i-- > 0;) {
    backwards.add(events[i].first, events[i].second - 1 + (events[i].second == 1));
    if (events[i].second > 1) backwards.add(events[i].first);
  }
  EXPECT_EQ(forwards, backwards);
  EXPECT_EQ(forwards.save(), backwards.save());
  const Certified a = forwards.epsilon(1e-5), b = backwards.epsilon(1e-5);
  EXPECT_EQ(a.value.lower, b.value.lower);
  EXPECT_EQ(a.value.upper, b.value.upper);
  EXPECT_EQ(forwards.steps(), 451u);
}

TEST(PldAccountant, ComesBackFromItsBytes) {
  PldAccountant accountant(kAdjacency);
  accountant.add(step(.01, 1), 300);
  accountant.add(
      Event(GaussianGroups{{{2, 1}, {2, 1}, {2, 1}, {2, 1}}, {}, {}}, Poisson{.01}, kAdjacency), 7);
  accountant.add(Event(Guarantee{.1, 1e-9}, NoSampling{}, kAdjacency));
  const Bytes bytes = accountant.save();
  const PldAccountant back = PldAccountant::restore(bytes);
  EXPECT_EQ(back, accountant);
  EXPECT_EQ(back.save(), bytes);
  EXPECT_EQ(back.epsilon(1e-5).value.upper, accountant.epsilon(1e-5).value.upper);
  EXPECT_EQ(back.would_exceed(step(.01, 1), 1, .5, 1e-5),
            accountant.would_exceed(step(.01, 1), 1, .5, 1e-5));
  Bytes cut = bytes;
  cut.pop_back();
  refusal([&] { PldAccountant::restore(cut); }, ErrorCode::kMalformed);
  refusal([&] { PldAccountant::restore(encode(step(.1, 1))); }, ErrorCode::kMalformed);
}

TEST(PldAccountant, CountsGroupsOnOneSubsampleAsOneGaussian) {
  PldAccountant accountant(kAdjacency);
  const Group group{2, 1};
  accountant.add(
      Event(GaussianGroups{{group, group, group, group}, {}, {}}, Poisson{.01}, kAdjacency), 1000);
  // Four groups of sigma 2 are one of sigma 1; summing their log-moments would claim 1.430.
  const Certified result = accountant.epsilon(1e-5);
  EXPECT_NEAR(result.value.upper, 1.82823667, 1e-8);
}

TEST(PldAccountant, StopsExactlyWhereTheCertificateSays) {
  PldAccountant accountant(kAdjacency);
  accountant.add(step(.01, 1), 900);
  const auto epsilon = [](std::uint64_t n) {
    return certified_epsilon(single(.01, 1, n), 1e-5).value.upper;
  };
  EXPECT_FALSE(accountant.would_exceed(step(.01, 1), 100, epsilon(1000), 1e-5));
  EXPECT_TRUE(accountant.would_exceed(step(.01, 1), 101, epsilon(1000), 1e-5));
  EXPECT_FALSE(accountant.would_exceed(step(.01, 1), 1, 100, 1e-5));
  EXPECT_EQ(accountant.steps(), 900u);
}

TEST(PldAccountant, BoundsEpsilonCheaplyFromAbove) {
  for (const auto& [q, sigma, n, delta] : {std::tuple{.01, 1.0, 1000u, 1e-5},
                                           {.2, .8, 100u, 1e-6},
                                           {1.0, 5.0, 10u, 1e-5},
                                           {.001, 2.0, 50000u, 1e-6},
                                           {.5, 1.0, 2u, 1e-9}}) {
    RenyiBudget budget;
    budget.add(single(q, sigma, n));
    const double upper = budget.epsilon_upper(delta);
    const Certified exact = certified_epsilon(single(q, sigma, n), delta);
    EXPECT_GE(upper, exact.value.lower);
    EXPECT_LT(upper, 1.6 * exact.value.upper + .2) << q << ' ' << sigma;
    RenyiBudget twice;
    twice.add(single(q, sigma, n / 2));
    twice.add(single(q, sigma, n - n / 2));
    EXPECT_EQ(twice, budget);
  }
}

TEST(PldAccountant, EndsWhenTwoPathsDisagree) {
  require_overlap(Path::kContour, {1, 2}, Path::kTransform, {2, 3});
  for (const Interval other : {Interval{2.5, 3}, Interval{.1, .9}, Interval{std::nan(""), 2}}) {
    const auto sentence = refusal(
        [&] {
          require_overlap(Path::kContour, {1, 2}, Path::kTransform, other);
        },
        ErrorCode::kAccountantDivergence);
    EXPECT_NE(sentence.find("contour path returned [1, 2]"), std::string::npos) << sentence;
  }
}

TEST(PldAccountant, EndsWhenArithmeticLeavesItsRange) {
  PldAccountant accountant(kAdjacency);
  accountant.add(step(.5, 1e-170), 3);
  refusal([&] { accountant.epsilon(1e-5); }, ErrorCode::kAccountantOverflow);
}

// Below, T/(2 sigma^2) steps with full batches reveal at least half of the time; above, with the
// tail of that Gaussian loss (mean mu^2/2, deviation mu).
TEST(PldAccountant, BoundsLossesBeyondEveryGrid) {
  for (const double rate : {.01, .5, 1.0})
    for (const double sigma : {1e-3, 1e-2, .03})
      for (const std::uint64_t count : {std::uint64_t{3}, std::uint64_t{1000}}) {
        PldAccountant accountant(kAdjacency);
        accountant.add(step(rate, sigma), count);
        const Interval found = accountant.epsilon(1e-5).value;
        const double mu = std::sqrt(double(count)) / sigma, tail = 4.2648907939228256;
        EXPECT_LE(found.upper, (mu * mu / 2 + tail * mu) * (1 + 1e-9)) << rate << " " << sigma;
        if (rate == 1) {
          EXPECT_GE(found.upper, mu * mu / 2 + tail * mu - 20) << sigma;
        }
        // That a record was in some step at all, and that step alone, cost at least this.
        const Certified one = certified_epsilon({{{rate, sigma, 1}}, {}}, 1e-5);
        EXPECT_GE(found.upper * (1 + 1e-9), one.value.lower);
        EXPECT_TRUE(accountant.would_exceed(step(rate, sigma), 1, 50, 1e-5));
      }
}

TEST(PldAccountant, SpendsNothingWithoutSteps) {
  const PldAccountant accountant(kAdjacency);
  EXPECT_EQ(accountant.epsilon(1e-5).value.upper, 0);
  EXPECT_EQ(accountant.delta(.5).value.upper, 0);
}

TEST(PldAccountant, RefusesBadInputAndStaysAsItWas) {
  PldAccountant accountant(kAdjacency);
  accountant.add(step(.01, 1), 10);
  const Bytes before = accountant.save();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {0.0, 1.0, -.5, nan}) {
    const auto sentence = refusal([&] { accountant.epsilon(bad); }, ErrorCode::kInvalidDpConfig);
    EXPECT_NE(sentence.find("delta is"), std::string::npos) << sentence;
  }
  for (const double bad : {-1.0, nan, std::numeric_limits<double>::infinity()})
    refusal([&] { accountant.delta(bad); }, ErrorCode::kInvalidDpConfig);
  refusal([&] { accountant.add(step(.01, 1), 0); }, ErrorCode::kInvalidDpConfig);
  refusal([&] { accountant.add(Event(Laplace{1}, NoSampling{}, kAdjacency)); },
          ErrorCode::kInvalidDpConfig);
  refusal([&] { accountant.add(Event(Gaussian{1}, NoSampling{}, Adjacency::kZeroOut)); },
          ErrorCode::kInvalidDpConfig);
  refusal([&] { accountant.add(step(.5, 1), (std::uint64_t{1} << 63) - 5); },
          ErrorCode::kAccountantOverflow);
  EXPECT_EQ(accountant.save(), before);
}

TEST(PldAccountant, SaysInfinityWhenAGuaranteeFailsMoreOftenThanDelta) {
  PldAccountant accountant(kAdjacency);
  accountant.add(Event(Guarantee{.1, 1e-3}, NoSampling{}, kAdjacency));
  EXPECT_EQ(accountant.epsilon(1e-5).value.lower, std::numeric_limits<double>::infinity());
  EXPECT_EQ(accountant.epsilon(1e-5).value.upper, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(accountant.would_exceed(step(.01, 1), 1, 50, 1e-5));
}

// ------------------------------------------------------------ whole epochs

Event balls_and_bins(double sigma, std::uint64_t batches) {
  return Event(Gaussian{sigma}, BallsAndBins{batches}, Adjacency::kAddRemove);
}

TEST(PldAccountant, AccountsForBallsAndBinsEpochs) {
  PldAccountant accountant(Adjacency::kAddRemove);
  accountant.add(balls_and_bins(1.1, 235), 60);
  const Certified spent = accountant.epsilon(1e-5);
  // Reference: [2.33486, 2.33499].
  EXPECT_LE(spent.value.lower, 2.33499);
  EXPECT_GE(spent.value.upper, 2.33486);
  EXPECT_LT(spent.error(), 3e-3);
  EXPECT_EQ(spent.path, Path::kAllocation);
  EXPECT_LE(accountant.delta(spent.value.upper).value.lower, 1e-5);
  EXPECT_FALSE(accountant.would_exceed(balls_and_bins(1.1, 235), 1, 2.4, 1e-5));
  EXPECT_TRUE(accountant.would_exceed(balls_and_bins(1.1, 235), 1, 2.34, 1e-5));
  const PldAccountant restored = PldAccountant::restore(accountant.save());
  EXPECT_EQ(restored.epsilon(1e-5).value.upper, spent.value.upper);
}

TEST(PldAccountant, TakesFixedSizeBatchesAsPoissonAtHalfTheNoise) {
  PldAccountant fixed(Adjacency::kAddRemove), poisson(Adjacency::kAddRemove);
  fixed.add(Event(Gaussian{2}, FixedSize{10, 1000}, Adjacency::kAddRemove), 1000);
  poisson.add(Event(Gaussian{1}, Poisson{0.01}, Adjacency::kAddRemove), 1000);
  EXPECT_GE(fixed.epsilon(1e-5).value.upper, poisson.epsilon(1e-5).value.lower);
  EXPECT_NEAR(fixed.epsilon(1e-5).value.upper, poisson.epsilon(1e-5).value.upper, 1e-9);
}

TEST(PldAccountant, RefusesToMixWhatHasNoCommonBound) {
  PldAccountant accountant(Adjacency::kAddRemove);
  accountant.add(balls_and_bins(1, 100), 2);
  const Bytes before = accountant.save();
  EXPECT_THROW(accountant.add(Event(Gaussian{1}, Poisson{0.01}, Adjacency::kAddRemove)), Error);
  EXPECT_THROW(accountant.add(balls_and_bins(1, 100), 0), Error);
  EXPECT_EQ(accountant.save(), before);
  accountant.add(balls_and_bins(2, 50));  // unequal epochs do mix

  PldAccountant shuffled(Adjacency::kZeroOut);
  shuffled.add(Event(Gaussian{1}, ShuffledEpoch{100}, Adjacency::kZeroOut), 3);
  EXPECT_THROW(shuffled.add(Event(Gaussian{2}, ShuffledEpoch{100}, Adjacency::kZeroOut)), Error);
  EXPECT_THROW(shuffled.delta(1.0), Error);
  EXPECT_GT(shuffled.epsilon(1e-5).error(), 0.1) << "an attack from below, no credit from above";
}

// The Rényi bound of delta is one for every epsilon, so it is compared where delta is known.
TEST(PldAccountant, AnswersForAHugeEpsilonWithoutAGrid) {
  Composition steps;
  steps.gaussians.push_back({0.01, 1, 1000});
  RenyiBudget budget;
  budget.add(steps);
  for (const double epsilon : {0.0, 0.5, 2.0, 8.0, 20.0})
    EXPECT_GE(budget.delta_upper(epsilon), certified_delta(steps, epsilon).value.lower) << epsilon;
  EXPECT_LT(budget.delta_upper(8), 1e-9);
  for (const double epsilon : {1001.0, 1e4, 1e18, 1e308}) {
    const Certified found = certified_delta(steps, epsilon);
    EXPECT_EQ(found.value.lower, 0) << epsilon;
    EXPECT_FALSE(std::signbit(found.value.lower));
    EXPECT_LT(found.value.upper, 1e-300) << epsilon;
    EXPECT_GT(found.value.upper, 0) << epsilon;
  }
}

// Verifiers meet such events in files that others wrote.
TEST(PldAccountant, AnswersForStepsBeyondEveryGrid) {
  for (const auto& [rate, sigma] :
       {std::pair(1e-3, 3.0), std::pair(1.0, 1e5), std::pair(1e-12, 1e5)})
    for (const std::uint64_t count : {std::uint64_t{1} << 53, std::uint64_t{1} << 60}) {
      Composition steps;
      steps.gaussians.push_back({rate, sigma, count});
      try {
        const Interval found = certified_epsilon(steps, 1e-6).value;
        EXPECT_LE(found.lower, found.upper);
        EXPECT_GE(found.upper, 0);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kAccountantOverflow);
      }
    }
}

}  // namespace
}  // namespace discreet::accounting
