#include "discreet/accounting/event.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "discreet/accounting/closed_form.h"
#include "discreet/base/error_testing.h"

namespace discreet::accounting {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Event poisson(double rate, double sigma, Adjacency adjacency = Adjacency::kAddRemove) {
  return Event(Gaussian{sigma}, Poisson{rate}, adjacency);
}

TEST(Event, RefusesValuesOutOfRangeAndNamesThem) {
  for (const double bad : {kNan, kInfinity, 0.0, -1.5}) {
    EXPECT_NE(refusal([&] { poisson(0.1, bad); }).find(fmt::format("{}", bad)), std::string::npos);
  }
  for (const double bad : {kNan, 0.0, -0.25, 1.25, kInfinity}) {
    EXPECT_NE(refusal([&] { poisson(bad, 1); }).find(fmt::format("{}", bad)), std::string::npos);
  }
  const auto none = [](const Mechanism& m) {
    return Event(m, NoSampling{}, Adjacency::kAddRemove);
  };
  EXPECT_NE(refusal([&] { none(Guarantee{-0.5, 0}); }).find("-0.5"), std::string::npos);
  EXPECT_NE(refusal([&] { none(Guarantee{1, 1}); }).find("delta is 1"), std::string::npos);
  EXPECT_NE(refusal([&] { none(Laplace{kNan}); }).find("nan"), std::string::npos);
  EXPECT_NE(refusal([&] {
              none(GaussianGroups{{}, {}, {}});
            }).find("no groups"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              none(GaussianGroups{{{1, 1}, {1, -2}}, {}, {}});
            }).find("group 1 is -2"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              none(GaussianGroups{{{1, 1}}, {}, Adaptation{0, 1}});
            }).find("counts"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              Event(Gaussian{1}, FixedSize{9, 8}, Adjacency::kReplaceOne);
            }).find("9; it must be at most the population of 8"),
            std::string::npos);
}

TEST(Event, RefusesSamplingThatHasNoGuaranteeUnderTheAdjacency) {
  EXPECT_NE(refusal([] { poisson(.1, 1, Adjacency::kReplaceOne); }).find("poisson"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              Event(Gaussian{1}, ShuffledEpoch{10}, Adjacency::kAddRemove);
            }).find("shuffled_epoch sampling has no guarantee under add_remove"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              Event(Gaussian{1}, TruncatedPoisson{.1, 1, 10}, Adjacency::kZeroOut);
            }).find("truncated_poisson sampling has no guarantee under zero_out"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              Event(Gaussian{1}, FixedSize{1, 10}, Adjacency::kZeroOut);
            }).find("fixed_size"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              Event(Guarantee{1, 0}, Poisson{.1}, Adjacency::kAddRemove);
            }).find("guarantee"),
            std::string::npos);
}

TEST(Event, HasStableNames) {
  EXPECT_EQ(describe(poisson(.1, 1, Adjacency::kZeroOut)), "poisson gaussian under zero_out");
  EXPECT_EQ(describe(Event(Skellam{1, 1, 1, 1}, NoSampling{}, Adjacency::kReplaceOne)),
            "skellam under replace_one");
}

// ---------------------------------------------------------------- groups

// Hockey-stick divergence of (1-q) N(0, I) + q N(m, I) from N(0, I) in the plane, by quadrature.
double plane_delta(double q, double mx, double my, double epsilon) {
  double total = 0;
  const double step = 0.02;
  for (double x = -9; x < 10; x += step) {
    for (double y = -9; y < 10; y += step) {
      const double base = std::exp(-(x * x + y * y) / 2) / (2 * M_PI);
      const double ratio = 1 - q + q * std::exp(mx * x + my * y - (mx * mx + my * my) / 2);
      total += base * std::max(ratio - std::exp(epsilon), 0.0) * step * step;
    }
  }
  return total;
}

TEST(Event, TreatsGroupsAsOneGaussianInThePlane) {
  const GaussianGroups groups{{{2, 1}, {0.9, 7}}, {}, {}};
  const double sigma = effective_noise_multiplier(groups);
  for (const double q : {0.1, 1.0}) {
    for (const double epsilon : {0.05, 0.7}) {
      const auto one = closed_form_delta({{{q, sigma, 1}}, {}}, Direction::kRemove, epsilon);
      // In units of each group's noise the record moves the outcome by 1/sigma_g.
      EXPECT_NEAR(plane_delta(q, 1 / 2.0, 1 / 0.9, epsilon), one->upper, 2e-6);
    }
  }
}

TEST(Event, CountsTheAdaptationQueryAsOneMoreCoordinate) {
  // A centred count moves by 1/2: in units of its noise by 1 / (2 sigma_b).
  const GaussianGroups adapted{{{1.5, 1}}, {}, Adaptation{1, 0.8}};
  const double sigma = effective_noise_multiplier(adapted);
  EXPECT_NEAR(1 / (sigma * sigma), 1 / 2.25 + 1 / (4 * 0.64), 1e-12);
  const auto one = closed_form_delta({{{.3, sigma, 1}}, {}}, Direction::kRemove, .4);
  EXPECT_NEAR(plane_delta(.3, 1 / 1.5, 0.5 / 0.8, .4), one->upper, 2e-6);
}

TEST(Event, KeepsASingleGroupBitForBit) {
  EXPECT_EQ(effective_noise_multiplier({{{1.1, 3}}, {}, {}}), 1.1);
  EXPECT_EQ(effective_noise_multiplier({{{1.1, 3}}, 3, {}}), 1.1);
}

TEST(Event, TakesTheLeastNoiseUnderFlatClipping) {
  EXPECT_NEAR(effective_noise_multiplier({{{2, 1}, {.7, 1}, {5, 1}}, 1, {}}), .7, 1e-14);
  EXPECT_LE(effective_noise_multiplier({{{2, 1}, {.7, 1}, {5, 1}}, 1, {}}), .7);
}

TEST(Event, ChoosesTheWorstRecordUnderHybridClippingAsBruteForceDoes) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(0.3, 3);
  for (int trial = 0; trial < 50; ++trial) {
    GaussianGroups event{{}, uniform(random) * 1.5, {}};
    for (int g = 0; g < 3; ++g) event.groups.push_back({uniform(random), uniform(random)});
    // All splits of the squared norm on a fine lattice of shares of the flat bound.
    const double flat = *event.flat_clip * *event.flat_clip;
    double most = 0;
    constexpr int kParts = 400;
    const auto part = [&](int g, int i) {
      const double clip = event.groups[static_cast<std::size_t>(g)].clip;
      return std::min(flat * i / kParts, clip * clip);
    };
    const auto price = [&](int g) {
      const Group& group = event.groups[static_cast<std::size_t>(g)];
      return 1 / std::pow(group.noise_multiplier * group.clip, 2);
    };
    for (int i = 0; i <= kParts; ++i) {
      for (int j = 0; i + j <= kParts; ++j) {
        const double rest = std::min(flat - part(0, i) - part(1, j), part(2, kParts));
        most = std::max(most, part(0, i) * price(0) + part(1, j) * price(1) + rest * price(2));
      }
    }
    const double precision = std::pow(effective_noise_multiplier(event), -2);
    EXPECT_GE(precision, most * (1 - 1e-12));
    EXPECT_LE(precision, most * 1.02);
  }
}

// A clip bound is a unit: nothing may change when all are tiny or huge, and a small group's noise
// counts although the square of its clip bound underflows.
TEST(Event, DoesNotLoseGroupsWhoseClipSquaredUnderflows) {
  const double expected = 1e10 / std::sqrt(2.0);
  for (const double clip : {1e-165, 1e-163, 1e-160, 1.0, 1e160}) {
    EXPECT_NEAR(effective_noise_multiplier({{{1e10, 1}, {1e10, clip}}, {}, {}}) / expected, 1,
                1e-14)
        << clip;
    EXPECT_LE(effective_noise_multiplier({{{1e10, 1}, {1e10, clip}}, {}, {}}), expected) << clip;
  }
  const double plain = effective_noise_multiplier({{{2, 3}, {1, 2}, {4, 1}}, 3, {}});
  for (const double unit : {0x1p-600, 0x1p600}) {
    const GaussianGroups scaled{{{2, 3 * unit}, {1, 2 * unit}, {4, unit}}, 3 * unit, {}};
    EXPECT_EQ(effective_noise_multiplier(scaled), plain);
  }
}

TEST(Event, DoesNotDependOnTheOrderOfGroups) {
  const GaussianGroups a{{{2, 1}, {.7, 3}, {1.3, .2}}, 1.1, {}};
  const GaussianGroups b{{{1.3, .2}, {2, 1}, {.7, 3}}, 1.1, {}};
  EXPECT_EQ(effective_noise_multiplier(a), effective_noise_multiplier(b));
}

// ---------------------------------------------------------------- reduction

TEST(Reduce, MergesAndSorts) {
  const Composition a = reduce({{poisson(.2, 1), 3}, {poisson(.1, 2), 5}, {poisson(.2, 1), 4}});
  const Composition b = reduce({{poisson(.1, 2), 5}, {poisson(.2, 1), 7}});
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.gaussians, (std::vector<GaussianSteps>{{.1, 2, 5}, {.2, 1, 7}}));
}

TEST(Reduce, DoublesTheSensitivityWhenARecordIsReplaced) {
  const Event event(Gaussian{3}, NoSampling{}, Adjacency::kReplaceOne);
  EXPECT_EQ(reduce({{event, 2}}).gaussians, (std::vector<GaussianSteps>{{1, 1.5, 2}}));
  const Event zero(Gaussian{3}, NoSampling{}, Adjacency::kZeroOut);
  EXPECT_EQ(reduce({{zero, 2}}).gaussians, (std::vector<GaussianSteps>{{1, 3, 2}}));
}

TEST(Reduce, RefusesByNameWhatItCannotCompose) {
  const auto says = [](Mechanism m, Sampling s, Adjacency a, std::string_view what) {
    EXPECT_NE(refusal([&] {
                reduce({{Event(m, s, a), 1}});
              }).find(what),
              std::string::npos)
        << what;
  };
  const Adjacency add = Adjacency::kAddRemove;
  says(Laplace{1}, NoSampling{}, add, "laplace under add_remove");
  says(DiscreteGaussian{1, 10}, NoSampling{}, add, "discrete_gaussian");
  says(Skellam{1, 1, 1, 1}, NoSampling{}, add, "skellam");
  says(Gaussian{1}, TruncatedPoisson{.1, 10, 100}, add, "truncated_poisson gaussian");
  says(Gaussian{1}, FixedSize{10, 100}, Adjacency::kReplaceOne, "fixed_size");
  says(Gaussian{1}, BallsAndBins{10}, add, "balls_and_bins");
  says(Gaussian{1}, ShuffledEpoch{10}, Adjacency::kZeroOut, "shuffled_epoch");
}

TEST(Reduce, RefusesMixedAdjacencyAndOverflow) {
  EXPECT_NE(refusal([] {
              reduce({{poisson(.1, 1), 1}, {poisson(.1, 1, Adjacency::kZeroOut), 1}});
            }).find("the same adjacency"),
            std::string::npos);
  EXPECT_NE(refusal([] { reduce({{poisson(.1, 1), 0}}); }).find("count is 0"), std::string::npos);
  refusal(
      [] {
        reduce(
            {{poisson(.1, 1), std::uint64_t{1} << 62}, {poisson(.1, 1), std::uint64_t{1} << 62}});
      },
      ErrorCode::kAccountantOverflow);
}

// ---------------------------------------------------------------- bytes

TEST(EventBytes, ComeBackAsTheSameEvent) {
  const Adjacency add = Adjacency::kAddRemove;
  const Event events[] = {
      poisson(.01, 1.1),
      Event(GaussianGroups{{{1.5, 1}, {2, .1}}, 1.2, Adaptation{2, 30}}, Poisson{.25}, add),
      Event(GaussianGroups{{{1.5, 1}}, {}, {}}, NoSampling{}, Adjacency::kReplaceOne),
      Event(Laplace{2}, NoSampling{}, add),
      Event(DiscreteGaussian{2, 100}, TruncatedPoisson{.1, 64, 1000}, add),
      Event(RoundedGaussian{2}, FixedSize{64, 1000}, Adjacency::kReplaceOne),
      Event(Skellam{4, 3, 2, 1}, BallsAndBins{100}, add),
      Event(Gaussian{4}, ShuffledEpoch{100}, Adjacency::kZeroOut),
      Event(Guarantee{.5, 1e-9}, NoSampling{}, add),
  };
  for (const Event& event : events) {
    const Event back = decode_event(encode(event));
    EXPECT_EQ(back, event) << describe(event);
    EXPECT_EQ(encode(back), encode(event));
  }
}

TEST(EventBytes, AreRefusedWhenTheyAreNoEvent) {
  const Bytes good = encode(poisson(.5, 1));
  Bytes cut = good;
  cut.pop_back();
  refusal([&] { decode_event(cut); }, ErrorCode::kMalformed);
  refusal([&] { decode_event(from_hex("a0")); }, ErrorCode::kMalformed);
  refusal([&] { decode_event(from_hex("01")); }, ErrorCode::kMalformed);
}

}  // namespace
}  // namespace discreet::accounting
