#include "discreet/accounting/transform/transform.h"

#include <gtest/gtest.h>

#include <random>

#include "discreet/accounting/closed_form.h"
#include "discreet/accounting/reference_testing.h"
#include "discreet/accounting/transform/loss_grid_impl.h"

namespace discreet::accounting {
namespace {

constexpr Direction kBoth[] = {Direction::kRemove, Direction::kAdd};

Composition single(double q, double sigma, std::uint64_t count) {
  return {{{q, sigma, count}}, {}};
}

struct Known {
  double q, sigma;
  std::uint64_t count;
  double delta, remove;  // epsilon in the remove direction
  double add = 0;        // in the add direction, where known
};

// Settings of the literature and of a contour evaluation that shares no code with the transform.
const Known kKnown[] = {
    {.04, 1.5, 2249, 1e-5, 6.76704411},   {.05, 1.5, 100, 1e-6, 1.94373555},
    {.05, 1.5, 1000, 1e-6, 6.19969168},   {.05, 3, 20000, 1e-6, 13.95060947},
    {.2, .8, 100, 1e-6, 24.32262020},     {.001, .8, 20000, 1e-6, 1.28592271},
    {.001, 2, 50000, 1e-6, .48131484},    {.01, .7, 120, 1e-5, 2.46123769},
    {.1, 3, 512, 1e-6, 3.76968381},       {.01, 1, 1000, 1e-5, 1.82823666652, 1.416661948035},
    {.01, .8, 10000, 1e-5, 10.05363477},  {256 / 60000., 1.1, 14040, 1e-5, 2.37955452},
    {.001, .6, 100000, 1e-6, 6.96084388}, {.05, 2, 5000, 1e-6, 10.35402849},
    {.01, 1, 1000, 1e-15, 4.85453775},    {.3, 10, 2000, 1e-9, 8.6228151},
    {.001, 2, 100, 1e-5, 0.014629403},    {.1, 1, 20, 1e-5, 3.59074466974},
    {.001, .8, 1000, 1e-6, 0.467683055},  {.001, 1, 1000000, 1e-8, 7.86451794},
};

TEST(Transform, ContainsKnownValuesWithinTheRequestedWidth) {
  for (const Known& known : kKnown) {
    const double width = std::min(2e-3, 0.1 * known.remove);
    const auto result = transform_epsilon(single(known.q, known.sigma, known.count),
                                          Direction::kRemove, known.delta, width);
    EXPECT_LE(result.value.lower, known.remove + 1e-8) << known.q << ' ' << known.sigma;
    EXPECT_GE(result.value.upper, known.remove - 1e-8) << known.q << ' ' << known.sigma;
    EXPECT_LE(result.value.upper - result.value.lower, width) << known.q << ' ' << known.sigma;
    EXPECT_TRUE(result.reached);
    if (known.add > 0) {
      const auto add = transform_epsilon(single(known.q, known.sigma, known.count), Direction::kAdd,
                                         known.delta, width);
      EXPECT_LE(add.value.lower, known.add);
      EXPECT_GE(add.value.upper, known.add);
    }
  }
}

TEST(Transform, AgreesWithQuadratureOfTwoAndThreeSteps) {
  for (const double q : {0.002, 0.2, 0.7}) {
    for (const double sigma : {0.5, 1.0, 4.0}) {
      for (const Direction direction : kBoth) {
        for (const int count : {2, 3}) {
          const int nodes = count == 2 ? 4000 : 250;
          for (const double epsilon : {0.05, 0.8}) {
            const auto truth = static_cast<double>(
                reference::delta_many(q, sigma, direction, count, epsilon, nodes));
            const auto result = transform_delta(single(q, sigma, static_cast<std::uint64_t>(count)),
                                                direction, epsilon, 1e-2);
            const double slack = count == 2 ? 1e-9 : 1e-7;
            EXPECT_LE(result.value.lower, truth + slack) << q << ' ' << sigma << ' ' << count;
            EXPECT_GE(result.value.upper, truth - slack) << q << ' ' << sigma << ' ' << count;
            if (truth > 1e-11) {
              EXPECT_TRUE(result.reached)
                  << q << ' ' << sigma << ' ' << count << ' ' << epsilon << ' '
                  << result.value.lower << ' ' << result.value.upper << ' ' << truth;
            }
          }
        }
      }
    }
  }
}

TEST(Transform, OverlapsTheClosedFormOfOneStep) {
  for (const double q : {1e-5, 0.01, 0.3, 1.0}) {
    for (const double sigma : {0.3, 1.0, 10.0}) {
      for (const double delta : {1e-3, 1e-8, 1e-30}) {
        for (const Direction direction : kBoth) {
          const auto exact = closed_form_epsilon(single(q, sigma, 1), direction, delta);
          ASSERT_TRUE(exact);
          const auto result = transform_epsilon(single(q, sigma, 1), direction, delta, 2e-3);
          EXPECT_LE(result.value.lower, exact->upper) << q << ' ' << sigma << ' ' << delta;
          EXPECT_GE(result.value.upper, exact->lower) << q << ' ' << sigma << ' ' << delta;
          if (q > 1e-4 || delta > 1e-20) {
            EXPECT_TRUE(result.reached) << q << ' ' << sigma << ' ' << delta;
          }
        }
      }
    }
  }
}

TEST(Transform, OverlapsTheClosedFormOfManyFullBatches) {
  for (const std::uint64_t count : {2u, 100u, 10000u}) {
    for (const double delta : {1e-5, 1e-20}) {
      const Composition steps = single(1, 20, count);
      const auto exact = closed_form_epsilon(steps, Direction::kRemove, delta);
      const auto result = transform_epsilon(steps, Direction::kRemove, delta, 1e-3);
      EXPECT_LE(result.value.lower, exact->upper);
      EXPECT_GE(result.value.upper, exact->lower);
      EXPECT_TRUE(result.reached);
    }
  }
}

// n uses of an (e, d)-DP mechanism: the worst case is randomised response, whose composition is a
// binomial sum.
double explicit_delta(double e, double d, int n, double epsilon) {
  long double total = 0, choose = 1;
  const long double heads = std::exp(static_cast<long double>(e)) / (1 + std::exp((long double)e));
  for (int k = 0; k <= n; ++k) {
    const long double mass = choose * std::pow(heads, k) * std::pow(1 - heads, n - k);
    const long double gain = -std::expm1(epsilon - (2 * k - n) * static_cast<long double>(e));
    if (gain > 0) total += mass * gain;
    choose *= static_cast<long double>(n - k) / (k + 1);
  }
  const long double finite = std::pow(1 - static_cast<long double>(d), n);
  return static_cast<double>(1 - finite + finite * total);
}

TEST(Transform, ComposesExplicitGuarantees) {
  for (const int n : {1, 2, 30, 200}) {
    for (const double d : {0.0, 1e-9}) {
      const Composition steps{{}, {{0.1, d, static_cast<std::uint64_t>(n)}}};
      const double epsilon = 0.3 * 0.1 * n;
      const double truth = explicit_delta(0.1, d, n, epsilon);
      const auto result = transform_delta(steps, Direction::kRemove, epsilon, 1e-3);
      EXPECT_LE(result.value.lower, truth * (1 + 1e-12)) << n;
      EXPECT_GE(result.value.upper, truth * (1 - 1e-12)) << n;
      EXPECT_TRUE(result.reached) << n << ' ' << result.value.lower << ' ' << result.value.upper;
    }
  }
}

TEST(Transform, MixesGaussianAndExplicitSteps) {
  // delta = p + (1 - p) sum_s w_s delta_gauss(epsilon - s) over the two finite losses.
  const double e = 0.37, d = 1e-6, epsilon = 0.5;
  const double high = std::exp(e) / (1 + std::exp(e));
  const double one =
      d + (1 - d) *
              static_cast<double>(
                  high * reference::delta_many(.2, 1, Direction::kAdd, 2, epsilon - e, 4000) +
                  (1 - high) * reference::delta_many(.2, 1, Direction::kAdd, 2, epsilon + e, 4000));
  const auto result = transform_delta({{{.2, 1, 2}}, {{e, d, 1}}}, Direction::kAdd, epsilon, 1e-2);
  EXPECT_LE(result.value.lower, one + 1e-10);
  EXPECT_GE(result.value.upper, one - 1e-10);
  EXPECT_TRUE(result.reached) << result.value.lower << ' ' << one << ' ' << result.value.upper;
}

TEST(Transform, SaysInfinityWhenDeltaIsBelowTheFailureMass) {
  const auto result = transform_epsilon({{}, {{1, 1e-3, 1}}}, Direction::kRemove, 1e-4, 1e-3);
  EXPECT_EQ(result.value.lower, std::numeric_limits<double>::infinity());
  EXPECT_EQ(result.value.upper, std::numeric_limits<double>::infinity());
}

TEST(Transform, TreatsADistinctEventAsItsRepetition) {
  // Noise multipliers so close that the two compositions cannot be told apart.
  const auto same = transform_epsilon(single(.01, 1, 1000), Direction::kRemove, 1e-5, 1e-3);
  const auto split = transform_epsilon({{{.01, 1, 400}, {.01, 1 + 1e-14, 600}}, {}},
                                       Direction::kRemove, 1e-5, 1e-3);
  EXPECT_TRUE(split.reached);
  EXPECT_LE(split.value.lower, same.value.upper);
  EXPECT_GE(split.value.upper, same.value.lower);
}

TEST(Transform, IsSoundInTheHardCorners) {
  // Remove dominates add here and full batches dominate samples: cheap two-sided sanity where no
  // reference is affordable.
  for (const double q : {1e-7, 1e-4}) {
    for (const double sigma : {0.3, 1.0, 100.0}) {
      for (const std::uint64_t count : {std::uint64_t{3}, std::uint64_t{10000000}}) {
        for (const double delta : {1e-6, 1e-30}) {
          const auto result =
              transform_epsilon(single(q, sigma, count), Direction::kRemove, delta, 2e-3);
          EXPECT_LE(result.value.lower, result.value.upper);
          EXPECT_GE(result.value.lower, 0);
          const auto full = closed_form_epsilon(single(1, sigma, count), Direction::kRemove, delta);
          if (full) {
            EXPECT_LE(result.value.lower, full->upper);
          }
        }
      }
    }
  }
}

// The laws themselves, one step, without transform: lower <= truth <= upper at every epsilon.
TEST(LossGrid, BracketsTheTrueDivergenceEverywhere) {
  for (const double q : {1e-4, 0.05, 0.6, 1.0}) {
    for (const double sigma : {0.4, 1.0, 5.0}) {
      for (const double h : {0x1p-4, 0x1p-8}) {
        for (const Direction direction : kBoth) {
          const LossGrid law = gaussian_grid(q, sigma, direction, h, 1e-16, {1, 8});
          for (double epsilon = -2; epsilon < 4; epsilon += 0.037) {
            long double upper = law.infinity_upper, lower = law.infinity_lower;
            for (std::size_t k = 0; k < law.upper.size(); ++k) {
              const long double at = static_cast<long double>(law.index[k]) * h +
                                     static_cast<long double>(law.offset) * h / kOffsetUnits;
              const long double gain = -std::expm1(epsilon - at);
              if (gain <= 0) continue;
              upper += law.upper[k] * gain;
              lower += law.lower[k] * gain;
            }
            const long double truth = reference::delta_one(q, sigma, direction, epsilon);
            EXPECT_GE(upper, truth - 1e-17L) << q << ' ' << sigma << ' ' << h << ' ' << epsilon;
            EXPECT_LE(lower, truth + 1e-17L) << q << ' ' << sigma << ' ' << h << ' ' << epsilon;
          }
        }
      }
    }
  }
}

TEST(LossGrid, IsOfSecondOrder) {
  // The two laws' variances differ by about h^2/4 (1/6 from connecting dots, 1/12 from merging).
  for (const Direction direction : kBoth) {
    const double h = 0x1p-10;
    const LossGrid law = gaussian_grid(0.01, 1, direction, h, 1e-14, {3, 6});
    double difference = 0;
    for (std::size_t k = 0; k < law.upper.size(); ++k) {
      const double at = static_cast<double>(law.index[k]) * h;
      difference += (law.upper[k] - law.lower[k]) * at * at;
    }
    EXPECT_LT(difference, 0.3 * h * h);
    EXPECT_GT(difference, 0.2 * h * h);
  }
}

}  // namespace
}  // namespace discreet::accounting
