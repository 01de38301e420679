// Samplers under Gaussian noise. With a new seed, every test rejects a true claim with probability
// at most 1e-6 per claim. It must reject a claim 10% too low (or a wrong accountant's) with four
// standard deviations to spare: a miss has probability 3.2e-5 at that margin (falsifier.h). See
// README.md for how to add a case.
#include "tests/conformance/falsifier.h"

#include <cmath>
#include <string>

#include "discreet/accounting/closed_form.h"
#include "discreet/accounting/contour/contour.h"
#include "discreet/accounting/sampling/balls_and_bins.h"
#include "discreet/accounting/sampling/fixed_size.h"
#include "discreet/accounting/sampling/shuffle.h"
#include "discreet/accounting/sampling/truncated_poisson.h"
#include "discreet/accounting/sum_rule.h"
#include "discreet/accounting/transform/transform.h"
#include "tests/conformance/falsifier_testing.h"
#include "tests/conformance/simulated.h"

namespace discreet::conformance {
namespace {

using namespace accounting;

constexpr std::size_t kTrials = std::size_t{1} << 19;  // in each world
constexpr std::size_t kCostly = std::size_t{1} << 18;  // where every trial draws its own subset

// As PldAccountant, but for one direction.
Interval certified(const Composition& steps, Direction direction, double delta) {
  if (const auto closed = closed_form_epsilon(steps, direction, delta)) return *closed;
  if (const auto contour = contour_epsilon(steps, direction, delta)) return contour->value;
  return transform_epsilon(steps, direction, delta, 1e-3).value;
}
Interval certified(const GaussianSteps& steps, Direction direction, double delta) {
  return certified(Composition{{steps}, {}}, direction, delta);
}

std::vector<double> binomial(std::size_t n, double p) {
  std::vector<double> masses;
  for (std::size_t k = 0; k <= n; ++k) {
    const double nd = double(n), kd = double(k);
    masses.push_back(std::exp(std::lgamma(nd + 1) - std::lgamma(kd + 1) - std::lgamma(nd - kd + 1) +
                              kd * std::log(p) + (nd - kd) * std::log1p(-p)));
  }
  return masses;
}

// The tester itself, on worlds that see S with probabilities p and q: the chance that it rejects,
// summed over all counts.
TEST(Falsifier, RejectsTrueClaimsRarelyAndWrongOnesOften) {
  const std::size_t n = 2000;
  const auto chance = [&](double p, double q, double epsilon, double delta) {
    const auto first = binomial(n, p), second = binomial(n, q);
    double sum = 0;
    for (std::size_t i = 0; i <= n; ++i)
      for (std::size_t j = 0; j <= n; ++j) {
        const double mass = first[i] * second[j];
        if (mass > 1e-18 && judge(i, j, i * j / n, n, epsilon, delta).rejected()) sum += mass;
      }
    return sum;
  };
  for (const double epsilon : {0.0, 1.0})
    for (const double q : {.001, .02, .2}) {
      const double p = .1 + std::exp(epsilon) * q;
      EXPECT_LE(chance(p, q, epsilon, .1), kFalseAlarm) << epsilon << ' ' << q;
      EXPECT_GE(chance(p + .3, q, epsilon, .1), .99) << epsilon << ' ' << q;
    }
}

TEST(Falsifier, EveryoneGaussian) {
  const double sigma = 2.4, delta = .05;
  for (const Adjacency adjacency :
       {Adjacency::kAddRemove, Adjacency::kZeroOut, Adjacency::kReplaceOne}) {
    const bool replace = adjacency == Adjacency::kReplaceOne;
    const Claims claims(std::string(to_string(adjacency)),
                        simulate(*poisson(1, {1}, {sigma}, adjacency), 3, kTrials, 1), delta);
    claims.expect_accountants_stand({Gaussian{sigma}, NoSampling{}, adjacency}, 3, 5);
    for (const Direction direction : kBoth) {
      claims.expect_tight(direction,
                          certified({1, replace ? sigma / 2 : sigma, 3}, direction, delta));
      claims.expect_rejected(direction, certified({1, sigma, 2}, direction, delta).upper,
                             "one_step_forgotten");
      if (replace) {
        claims.expect_rejected(direction, certified({1, sigma, 3}, direction, delta).upper,
                               "as_add_remove");
      }
    }
  }
}

// One step (closed form), three (transform) and twelve (contour).
TEST(Falsifier, PoissonGaussian) {
  const double delta = .05;
  for (const auto& [rate, sigma, steps] :
       {GaussianSteps{.5, .7, 1}, GaussianSteps{.4, .8, 3}, GaussianSteps{.25, .9, 12}}) {
    const Claims claims("steps_" + std::to_string(steps),
                        simulate(*poisson(rate, {1}, {sigma}), int(steps), kTrials, steps), delta);
    for (const Adjacency adjacency : {Adjacency::kAddRemove, Adjacency::kZeroOut}) {
      claims.expect_accountants_stand({Gaussian{sigma}, Poisson{rate}, adjacency}, steps, 5);
    }
    for (const Direction direction : kBoth) {
      claims.expect_tight(direction, certified({rate, sigma, steps}, direction, delta));
      // The mean rate of a subsample halved, as if batches were drawn from twice the records.
      claims.expect_rejected(direction, certified({rate / 2, sigma, steps}, direction, delta).upper,
                             "half_the_rate");
    }
  }
}

TEST(Falsifier, SeveralGroupsOnOneSubsample) {
  const double rate = .4, delta = .05;
  // Sixteen groups, each with its own clip bound.
  const GaussianGroups groups{std::vector<Group>(16, {2.6, .5}), std::nullopt, std::nullopt};
  const Event event{groups, Poisson{rate}, Adjacency::kAddRemove};
  const Claims claims(
      "groups",
      simulate(*poisson(rate, std::vector<double>(16, .5), std::vector<double>(16, 1.3)), 2,
               2 * kTrials, 20),
      delta);
  claims.expect_accountants_stand(event, 2, 5);
  for (const Direction direction : kBoth) {
    claims.expect_tight(direction, certified(reduce({{event, 2}}), direction, delta));
  }
  // Each group as if it had a subsample of its own: exactly, and by the specification's rule.
  claims.expect_rejected(Direction::kRemove,
                         certified({rate, 2.6, 32}, Direction::kRemove, delta).upper,
                         "separate_coins");
  claims.expect_rejected(Direction::kRemove,
                         rdp_sum_rule_epsilon({{event, 2}}, delta).not_a_bound(), "sum_rule");
}

// Bounds of 1 on each of two groups inside a bound of 1.25 on the whole: the worst record fills the
// group with less noise and puts the rest into the other.
TEST(Falsifier, HybridClipping) {
  const double rate = .4, delta = .05;
  const GaussianGroups groups{{{.8, 1}, {1.2, 1}}, 1.25, std::nullopt};
  const Event event{groups, Poisson{rate}, Adjacency::kAddRemove};
  const Claims claims("hybrid", simulate(*poisson(rate, {1, .75}, {.8, 1.2}), 2, kTrials, 21),
                      delta);
  claims.expect_accountants_stand(event, 2, 5);
  for (const Direction direction : kBoth) {
    claims.expect_tight(direction, certified(reduce({{event, 2}}), direction, delta));
    claims.expect_rejected(direction, certified({rate, .8, 2}, direction, delta).upper,
                           "second_group_forgotten");
  }
}

TEST(Falsifier, AdaptationCountsInTheSameStep) {
  const double rate = .4, sigma = 1, deviation = .6, delta = .05;
  const GaussianGroups groups{{{sigma, 1}}, std::nullopt, Adaptation{2, deviation}};
  const std::vector<double> deviations{sigma, deviation, deviation};
  const Claims claims("centred", simulate(*poisson(rate, {1, .5, -.5}, deviations), 2, kTrials, 22),
                      delta);
  const Claims uncentred(
      "uncentred", simulate(*poisson(rate, {1, 1, 1}, deviations), 2, kTrials / 2, 23), delta);
  for (const Adjacency adjacency : {Adjacency::kAddRemove, Adjacency::kZeroOut}) {
    claims.expect_accountants_stand({groups, Poisson{rate}, adjacency}, 2, 5);
  }
  const Event event{groups, Poisson{rate}, Adjacency::kZeroOut};
  for (const Direction direction : kBoth) {
    const Interval known = certified(reduce({{event, 2}}), direction, delta);
    claims.expect_tight(direction, known);
    uncentred.expect_rejected(direction, known.upper, "as_centred");
    claims.expect_rejected(direction, certified({rate, sigma, 2}, direction, delta).upper,
                           "counts_for_free");
  }
  const Composition separate{{{rate, sigma, 2}, {rate, 2 * deviation, 4}}, {}};
  claims.expect_rejected(Direction::kRemove, certified(separate, Direction::kRemove, delta).upper,
                         "separate_coins");
}

// Groups and counts, everyone in every step, one record replaced: all is doubled.
TEST(Falsifier, GroupsAndCountsUnderReplaceOne) {
  const double delta = .05;
  const GaussianGroups groups{{{3, 2}, {4, 1}}, std::nullopt, Adaptation{2, 2}};
  const Event event{groups, NoSampling{}, Adjacency::kReplaceOne};
  const Event add{groups, NoSampling{}, Adjacency::kAddRemove};
  const auto mechanism = poisson(1, {2, 1, .5, .5}, {6, 4, 2, 2}, Adjacency::kReplaceOne);
  const Claims claims("replace_one", simulate(*mechanism, 2, kTrials, 24), delta);
  claims.expect_accountants_stand(event, 2, 5);
  for (const Direction direction : kBoth) {
    claims.expect_tight(direction, certified(reduce({{event, 2}}), direction, delta));
    claims.expect_rejected(direction, certified(reduce({{add, 2}}), direction, delta).upper,
                           "as_add_remove");
  }
}

// Add/remove and zero-out are the same pair here.
TEST(Falsifier, BallsAndBinsGaussian) {
  const double sigma = .9, delta = .04;
  const AllocationEpochs epochs{sigma, 4, 3};
  const Claims claims("epochs", simulate(*balls_and_bins(4, sigma), 3, kTrials, 30), delta);
  for (const Adjacency adjacency : {Adjacency::kAddRemove, Adjacency::kZeroOut}) {
    claims.expect_accountants_stand({Gaussian{sigma}, BallsAndBins{4}, adjacency}, 3, 1);
  }
  for (const Direction direction : kBoth) {
    claims.expect_tight(direction, allocation_epsilon({&epochs, 1}, delta, direction, 1e-3));
    claims.expect_stands(direction, allocation_epsilon({&epochs, 1}, delta, 1e-3).upper, "worse");
    claims.expect_rejected(direction, certified({.25, sigma, 3}, direction, delta).upper,
                           "epoch_as_one_poisson_step");
  }
  claims.expect_rejected(Direction::kAdd, certified({.25, sigma, 12}, Direction::kAdd, delta).upper,
                         "as_poisson");
}

// Exact noise and noise rounded to a grid, for which the same claims hold.
TEST(Falsifier, FixedSizeGaussian) {
  const std::uint64_t batch = 4, population = 6;
  const double rate = 4. / 6, delta = .07;
  const struct {
    Adjacency adjacency;
    Noise noise;
    std::uint64_t steps;
    double sigma;
    std::uint64_t seed;
  } settings[] = {{Adjacency::kAddRemove, Noise::kGaussian, 2, 1.75, 40},
                  {Adjacency::kReplaceOne, Noise::kGaussian, 2, 1.75, 41},
                  {Adjacency::kReplaceOne, Noise::kRounded, 1, 1.25, 42}};
  for (const auto& [adjacency, noise, steps, sigma, seed] : settings) {
    const bool rounded = noise == Noise::kRounded;
    const auto mechanism = fixed_size(batch, population, sigma, adjacency);
    const Claims claims(std::string(to_string(adjacency)) + (rounded ? ".rounded" : ""),
                        simulate(*mechanism, int(steps), kCostly * 3 / 2, seed, noise), delta);
    const Mechanism named = rounded ? Mechanism{RoundedGaussian{sigma}} : Gaussian{sigma};
    claims.expect_accountants_stand({named, FixedSize{batch, population}, adjacency}, steps, 4);
    for (const Direction direction : kBoth) {
      // Under replace_one this is the pair that gives the lower end; swapped it is one, too.
      claims.expect_tight(direction,
                          certified(fixed_size_add_remove(rate, sigma, steps), direction, delta));
      claims.expect_rejected(direction, certified({rate, sigma, steps}, direction, delta).upper,
                             "as_poisson");
    }
    if (adjacency == Adjacency::kReplaceOne) {
      const Interval known = fixed_size_replace_one_epsilon({rate, sigma, steps}, delta, 1e-3);
      claims.expect_rejected(Direction::kRemove, .9 * known.lower, "replace_one_lower");
      for (const Direction direction : kBoth) {
        claims.expect_stands(direction, known.upper, "replace_one_upper");
      }
    }
  }
}

TEST(Falsifier, ShuffledEpochGaussian) {
  const std::uint64_t batches = 4, epochs = 2;
  const double delta = .1;
  for (const Adjacency adjacency : {Adjacency::kZeroOut, Adjacency::kReplaceOne})
    for (const Noise noise : {Noise::kGaussian, Noise::kRounded}) {
      const bool replace = adjacency == Adjacency::kReplaceOne, rounded = noise == Noise::kRounded;
      const double sigma = replace ? 1.5 : 1;
      const auto mechanism = shuffled_epoch(batches, 2, sigma, adjacency);
      const std::size_t trials = rounded ? kCostly / 8 : kCostly;
      const Claims claims(std::string(to_string(adjacency)) + (rounded ? ".rounded" : ""),
                          simulate(*mechanism, int(epochs), trials, 50, noise), delta);
      const Mechanism named = rounded ? Mechanism{RoundedGaussian{sigma}} : Gaussian{sigma};
      claims.expect_accountants_stand({named, ShuffledEpoch{batches}, adjacency}, epochs, 4);
      const ShuffledEpochs shuffled{sigma, batches, epochs};
      const Interval known = replace ? shuffle_replace_one_epsilon(shuffled, delta)
                                     : shuffle_zero_out_epsilon(shuffled, delta);
      claims.expect_tight(Direction::kRemove, known);
      claims.expect_stands(Direction::kAdd, known.upper, "known_upper");
      if (!rounded) claims.expect_rejected(Direction::kAdd, .9 * known.lower, "tenth_below_lower");
      // As if shuffling amplified: as Poisson batches, and as balls and bins.
      const AllocationEpochs allocation{sigma, batches, epochs};
      for (const Direction direction : kBoth) {
        claims.expect_rejected(direction,
                               certified({.25, sigma, batches * epochs}, direction, delta).upper,
                               "as_poisson");
        claims.expect_rejected(direction,
                               allocation_epsilon({&allocation, 1}, delta, direction, 1e-3).upper,
                               "as_balls_and_bins");
      }
    }
}

TEST(Falsifier, TruncatedPoissonGaussian) {
  const std::uint64_t capacity = 4, declared = 8, steps = 2;
  const double rate = .6, sigma = .9, delta = .05;
  const auto run = [&](std::string name, std::uint64_t population, int others, std::size_t trials,
                       std::uint64_t seed) {
    const auto mechanism = truncated_poisson(rate, capacity, population, sigma, others);
    return Claims(std::move(name), simulate(*mechanism, int(steps), trials, seed), delta);
  };
  const Claims vanish = run("others_vanish", declared, 0, 2 * kCostly, 60);
  const Claims oppose = run("others_oppose", declared, -1, kCostly, 61);
  const Claims one_more = run("one_more_than_declared", declared + 1, -1, kCostly / 2, 62);
  const Event event{Gaussian{sigma}, TruncatedPoisson{rate, capacity, declared},
                    Adjacency::kAddRemove};
  for (const Claims* claims : {&vanish, &oppose, &one_more}) {
    claims->expect_accountants_stand(event, steps, 1);
  }
  const double kept = truncation(rate, capacity, declared).inclusion_lower;
  for (const Direction direction : kBoth) {
    const Interval known =
        truncated_poisson_epsilon({rate, capacity, declared, sigma, steps}, delta, direction, 1e-3);
    vanish.expect_tight(direction, known);
    oppose.expect_stands(direction, known.upper, "known_upper");
    one_more.expect_stands(direction, known.upper, "known_upper");
    // As Poisson at the rate with which records are really in the batch.
    oppose.expect_rejected(direction, certified({kept, sigma, steps}, direction, delta).upper,
                           "as_poisson");
  }
}

// The other way round: the right accountant refutes a sampler whose steps share their coins.
TEST(Falsifier, CatchesASamplerThatRepeatsItsCoins) {
  const double rate = .25, sigma = .9, delta = .04;
  const auto broken = with_repeated_coins(poisson(rate, {1}, {sigma}));
  const Claims claims("repeated_coins", simulate(*broken, 6, kTrials / 4, 70), delta);
  claims.expect_rejected(Direction::kRemove,
                         certified({rate, sigma, 6}, Direction::kRemove, delta).upper, "certified");
}

}  // namespace
}  // namespace discreet::conformance
