// Noise families other than the Gaussian, everyone in every step and Poisson sampling. Their claims
// come from Renyi bounds and are loose: the power is shown against the exact epsilon, enumerated.
// Rates as in falsifier_test.cpp.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "discreet/accounting/closed_form.h"
#include "discreet/random/discrete.h"
#include "discreet/random/laplace.h"
#include "discreet/random/skellam.h"
#include "tests/conformance/falsifier_testing.h"
#include "tests/conformance/simulated.h"

namespace discreet::conformance {
namespace {

using namespace accounting;
using random::Generator;
using random::Position;
using random::Rational;

constexpr std::size_t kTrials = std::size_t{1} << 19;  // in each world

// A symmetric family on the integers: how it is drawn, and the logarithm of its masses.
template <class Draw, class LogMass>
NoiseFamily on_the_grid(Draw draw, LogMass log_mass) {
  std::vector<double> table;
  for (int y = 0; y <= 100; ++y) table.push_back(log_mass(y));
  return {[draw](const Generator& generator, const Position& position, std::span<double> out) {
            std::vector<std::int64_t> integers(out.size());
            draw(generator, position, integers);
            std::copy(integers.begin(), integers.end(), out.begin());
          },
          [table](double y) { return table.at(std::size_t(std::abs(y))); }};
}

double value(Rational r) { return double(r.numerator) / double(r.denominator); }

NoiseFamily discrete_gaussian(Rational variance) {
  const double v = value(variance);
  double sum = 0;
  for (int y = -100; y <= 100; ++y) sum += std::exp(-y * y / (2 * v));
  return on_the_grid(
      [=](const Generator& g, const Position& p, std::span<std::int64_t> out) {
        random::discrete_gaussian(g, p, variance, out);
      },
      [=](double y) { return -y * y / (2 * v) - std::log(sum); });
}

NoiseFamily rounded_gaussian(Rational deviation) {
  const auto tail = [s = value(deviation)](double x) { return std::erfc(x / (s * M_SQRT2)) / 2; };
  return on_the_grid(
      [=](const Generator& g, const Position& p, std::span<std::int64_t> out) {
        random::rounded_gaussian(g, p, deviation, out);
      },
      [=](double y) { return std::log(tail(y - .5) - tail(y + .5)); });
}

NoiseFamily skellam(Rational variance) {
  const double v = value(variance);
  return on_the_grid([=](const Generator& g, const Position& p,
                         std::span<std::int64_t> out) { random::skellam(g, p, variance, out); },
                     [=](double y) { return std::log(std::cyl_bessel_i(y, v)) - v; });
}

NoiseFamily laplace(double scale) {
  return {[=](const Generator& g, const Position& p, std::span<double> out) {
            random::fill_laplace(g, p, scale, out);
          },
          [=](double y) { return -std::abs(y) / scale - std::log(2 * scale); }};
}

double shift_back(double shift, Adjacency adjacency) {
  return adjacency == Adjacency::kReplaceOne ? -shift : 0;
}

// What a step of an integer family does.
std::vector<Outcome> outcomes(const NoiseFamily& noise, double shift, double rate,
                              Adjacency adjacency) {
  std::vector<Outcome> all;
  for (double y = -40; y <= 40; ++y) {
    const double without = std::exp(noise.log_density(y - shift_back(shift, adjacency)));
    all.push_back({(1 - rate) * without + rate * std::exp(noise.log_density(y - shift)), without});
  }
  return all;
}

// Laplace noise between -1 and 1 in cells, at which the shifts 0, 1 and -1 are corners: outside
// them the ratio is constant. Cells are a post-processing; at this width they cost 1e-5 of epsilon.
std::vector<Outcome> laplace_outcomes(double scale, double rate, Adjacency adjacency) {
  const auto below = [&](double x) {
    return x < 0 ? std::exp(x / scale) / 2 : 1 - std::exp(-x / scale) / 2;
  };
  const double back = shift_back(1, adjacency);
  std::vector<Outcome> all;
  const int cells = 256;
  for (int i = -1; i <= 2 * cells; ++i) {
    const double left = i < 0 ? -HUGE_VAL : -1 + double(i) / cells;
    const double right = i == 2 * cells ? HUGE_VAL : -1 + double(i + 1) / cells;
    const double without = below(right - back) - below(left - back);
    all.push_back({(1 - rate) * without + rate * (below(right - 1) - below(left - 1)), without});
  }
  return all;
}

// The law of a step, for the oracle.
using Law = std::function<std::vector<Outcome>(double rate, Adjacency adjacency)>;

struct Case {
  std::string name;
  NoiseFamily noise;
  double shift;  // what the record moves
  Mechanism mechanism;
  int accountants;  // that take the event, at least
  Law truth;
  Law wrong;  // what an accountant works with that takes a parameter for another
};

Case on_integers(std::string name, const NoiseFamily& noise, double shift, Mechanism mechanism,
                 int accountants, const NoiseFamily& wrong, double wrong_shift) {
  const auto law = [](const NoiseFamily& family, double move) -> Law {
    return
        [=](double rate, Adjacency adjacency) { return outcomes(family, move, rate, adjacency); };
  };
  return {std::move(name),        noise,       shift,
          std::move(mechanism),   accountants, law(noise, shift),
          law(wrong, wrong_shift)};
}

// Everyone for one and two steps under the three adjacencies; a Poisson subsample under the two it
// supports. Zero-out is the pair of add/remove.
void run(const Case& c, double delta, std::uint64_t seed) {
  const struct {
    double rate;
    int steps;
    Adjacency adjacency;
  } settings[] = {{1, 1, Adjacency::kAddRemove},
                  {1, 2, Adjacency::kAddRemove},
                  {1, 1, Adjacency::kReplaceOne},
                  {.8, 1, Adjacency::kAddRemove}};
  for (const auto& [rate, steps, adjacency] : settings) {
    const std::string name = c.name + (rate < 1 ? ".poisson." : ".everyone.") +
                             std::string(to_string(adjacency)) + '.' + std::to_string(steps);
    const Claims claims(name, simulate(c.noise, c.shift, rate, adjacency, steps, kTrials, seed++),
                        delta);
    const Sampling sampling = rate < 1 ? Sampling{Poisson{rate}} : Sampling{NoSampling{}};
    const auto count = std::uint64_t(steps);
    claims.expect_accountants_stand({c.mechanism, sampling, adjacency}, count, c.accountants);
    if (adjacency == Adjacency::kAddRemove) {
      claims.expect_accountants_stand({c.mechanism, sampling, Adjacency::kZeroOut}, count,
                                      c.accountants);
    }
    const auto truth = c.truth(rate, adjacency), wrong = c.wrong(rate, adjacency);
    for (const Direction direction : kBoth) {
      const double epsilon = enumerated_epsilon(truth, steps, direction, delta);
      claims.expect_tight(direction, {epsilon, epsilon});
      claims.expect_rejected(direction, enumerated_epsilon(wrong, steps, direction, delta),
                             "wrong");
    }
  }
}

// Wrong: the standard deviation taken for the scale.
TEST(FalsifierOfNoise, Laplace) {
  const auto law = [](double scale) -> Law {
    return [=](double rate, Adjacency a) { return laplace_outcomes(scale, rate, a); };
  };
  run({"laplace", laplace(.8), 1, Laplace{.8}, 2, law(.8), law(.8 * std::sqrt(2))}, .08, 70);
}

// Wrong: the variance taken for the standard deviation.
TEST(FalsifierOfNoise, DiscreteGaussian) {
  run(on_integers("discrete_gaussian", discrete_gaussian({9, 1}), 3, DiscreteGaussian{1, 3}, 2,
                  discrete_gaussian({81, 1}), 3),
      .08, 74);
}

// Wrong: the sensitivity, 3 units of the grid, forgotten.
TEST(FalsifierOfNoise, RoundedGaussian) {
  run(on_integers("rounded_gaussian", rounded_gaussian({3, 1}), 3, RoundedGaussian{1}, 5,
                  rounded_gaussian({3, 1}), 1),
      .08, 78);
}

// Wrong: the variance taken for that of each of the two Poisson variables.
TEST(FalsifierOfNoise, Skellam) {
  run(on_integers("skellam", skellam({9, 1}), 3, Skellam{9, 3, 3, 3}, 2, skellam({18, 1}), 3), .08,
      82);
}

// Half a unit of noise: the Gaussian's exact epsilon is 4.3 where the discrete one has 5.
TEST(FalsifierOfNoise, DiscreteGaussianIsNoGaussian) {
  const double delta = .065;
  const NoiseFamily noise = discrete_gaussian({1, 4});
  const Claims claims("coarse", simulate(noise, 1, 1, Adjacency::kAddRemove, 1, 2 * kTrials, 86),
                      delta);
  claims.expect_accountants_stand({DiscreteGaussian{.5, 1}, NoSampling{}, Adjacency::kAddRemove}, 1,
                                  2);
  const auto law = outcomes(noise, 1, 1, Adjacency::kAddRemove);
  for (const Direction direction : kBoth) {
    const double truth = enumerated_epsilon(law, 1, direction, delta);
    claims.expect_stands(direction, truth, "truth");
    const auto gaussian = closed_form_epsilon({{{1, .5, 1}}, {}}, direction, delta);
    EXPECT_LT(gaussian->upper, .9 * truth);
    claims.expect_rejected(direction, gaussian->upper, "as_gaussian");
  }
}

}  // namespace
}  // namespace discreet::conformance
