#include "discreet/accounting/contour/contour.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "discreet/accounting/contour/contour_brute_testing.h"
#include "discreet/accounting/contour/contour_query_impl.h"
#include "discreet/base/error.h"
#include "discreet/numerics/targets_testing.h"

namespace discreet::accounting {
namespace {

constexpr Direction kRemove = Direction::kRemove;
constexpr Direction kAdd = Direction::kAdd;

Composition steps(double rate, double sigma, std::uint64_t count) {
  return {{{rate, sigma, count}}, {}};
}

Composition sorted(Composition composition) {
  std::sort(composition.gaussians.begin(), composition.gaussians.end());
  std::sort(composition.explicits.begin(), composition.explicits.end());
  return composition;
}

// Log-uniform numbers from a fixed seed.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  double operator()(double low, double high) {
    return low * std::exp(std::log(high / low) * static_cast<double>(engine_() >> 11) * 0x1p-53);
  }
  bool coin() { return engine_() % 2 == 0; }
  std::uint64_t count(double low, double high) {
    return static_cast<std::uint64_t>((*this)(low, high));
  }

 private:
  std::mt19937_64 engine_;
};

long double normal_tail(long double x) { return 0.5L * erfcl(x / sqrtl(2)); }

// delta(epsilon) of a Gaussian with total mu, for epsilon of either sign.
long double gaussian_delta(long double mu, long double epsilon) {
  return normal_tail(epsilon / mu - mu / 2) - expl(epsilon) * normal_tail(epsilon / mu + mu / 2);
}

// How often the reference was inside, outside, or not available.
struct Tally {
  int inside = 0, outside = 0, unknown = 0;
};

void compare(const Composition& composition, Direction direction, double delta,
             const ContourResult& result, Tally& tally, double work = 3e6) {
  const auto curve = BruteCurve::near(composition, direction, result.value.upper, delta, work);
  if (!curve) {
    ++tally.unknown;
    return;
  }
  const auto high = curve->at(result.value.upper);
  const auto low = curve->at(result.value.lower);
  if (!(high.error < 1e-10 && low.error < 1e-10)) {
    ++tally.unknown;
    return;
  }
  const bool inside = high.delta * (1 - 2 * high.error) <= delta &&
                      (result.value.lower == 0 || low.delta * (1 + 2 * low.error) >= delta);
  ++(inside ? tally.inside : tally.outside);
  EXPECT_TRUE(inside) << "q=" << composition.gaussians[0].rate
                      << " sigma=" << composition.gaussians[0].sigma
                      << " T=" << composition.gaussians[0].count << " delta=" << delta << " ["
                      << result.value.lower << ", " << result.value.upper << "]";
}

struct Setting {
  double rate, sigma;
  std::uint64_t count;
  double delta;
  Direction direction;
  double low, high;  // digits known from earlier, independent computations
  double width;      // at most
};

TEST(Contour, AgreesWithKnownDigitsAndIsNarrow) {
  const Setting settings[] = {
      {.01, 1, 1000, 1e-5, kRemove, 1.828236666506, 1.828236666526, 1e-10},
      {.01, 1, 1000, 1e-5, kAdd, 1.416661948035, 1.416661948038, 1e-11},
      {.01, .8, 10000, 1e-5, kRemove, 10.0536347706, 10.0536347707, 1e-9},
      {256. / 60000, 1.1, 14040, 1e-5, kRemove, 2.379554518806, 2.379554518845, 1e-9},
      {.001, .6, 100000, 1e-6, kRemove, 6.9608438835, 6.9608438845, 1e-8},
      {.05, 2, 5000, 1e-6, kRemove, 10.354028490455, 10.354028490481, 1e-10},
      {.01, 1, 1000, 1e-15, kRemove, 4.85453775055, 4.85453775065, 1e-9},
      {.001, 2, 100, 1e-5, kRemove, .0146294030855, .0146294030865, 1e-11},
      {.001, 1, 1000000, 1e-8, kRemove, 7.864517935, 7.864517945, 1e-8},
      {.3, 10, 2000, 1e-9, kRemove, 8.622815077045, 8.622815077055, 1e-10},
      {.1, 1, 20, 1e-5, kRemove, 3.590744669735, 3.590744669745, 1e-10},
      {.001, .8, 1000, 1e-6, kRemove, .46768305, .46768306, 1e-6},
      // Table of published values, recomputed.
      {.04, 1.5, 2249, 1e-5, kRemove, 6.7670441, 6.76704412, 1e-9},
      {.05, 1.5, 100, 1e-6, kRemove, 1.94373554, 1.94373556, 1e-9},
      {.05, 1.5, 1000, 1e-6, kRemove, 6.19969167, 6.19969169, 1e-9},
      {.05, 3, 20000, 1e-6, kRemove, 13.95060946, 13.95060948, 1e-9},
      {.2, .8, 100, 1e-6, kRemove, 24.32262019, 24.32262021, 1e-9},
      {.001, .8, 20000, 1e-6, kRemove, 1.2859227, 1.28592272, 1e-7},
      {.001, 2, 50000, 1e-6, kRemove, .48131483, .48131485, 1e-9},
      {.01, .7, 120, 1e-5, kRemove, 2.46123768, 2.4612377, 1e-6},
      {.1, 3, 512, 1e-6, kRemove, 3.7696838, 3.76968382, 1e-9},
  };
  for (const Setting& s : settings) {
    const auto result = contour_epsilon(steps(s.rate, s.sigma, s.count), s.direction, s.delta);
    SCOPED_TRACE(testing::Message() << "q=" << s.rate << " sigma=" << s.sigma << " T=" << s.count);
    ASSERT_TRUE(result);
    EXPECT_LE(result->value.lower, s.high);
    EXPECT_GE(result->value.upper, s.low);
    EXPECT_LE(result->value.upper - result->value.lower, s.width);
    EXPECT_LE(result->value.lower, result->value.upper);
  }
}

TEST(Contour, ContainsTheClosedFormOfTheGaussian) {
  Draw draw(11);
  for (int i = 0; i < 60; ++i) {
    const double sigma = draw(.3, 100), delta = draw(1e-30, .1);
    const auto count = draw.count(1, 1e4);
    const long double mu = sqrtl(static_cast<long double>(count)) / sigma;
    for (const Direction direction : {kRemove, kAdd}) {
      const auto result = contour_epsilon(steps(1, sigma, count), direction, delta);
      if (!result) continue;
      SCOPED_TRACE(testing::Message() << "sigma=" << sigma << " T=" << count << " d=" << delta);
      // The closed form cancels: it is known to about 1e-18 relative to its larger term.
      const auto noise = [&](double e) { return 1e-17L * normal_tail(e / mu - mu / 2); };
      const double high = result->value.upper, low = result->value.lower;
      EXPECT_LE(gaussian_delta(mu, high), delta + noise(high));
      if (low > 0) {
        EXPECT_GE(gaussian_delta(mu, low), delta - noise(low));
      }
    }
  }
}

TEST(Contour, ContainsTheClosedFormOfGaussianAndExplicitSteps) {
  for (const auto n : {1, 3, 10}) {
    for (const double each : {0.1, 0.7}) {
      for (const double failing : {0.0, 1e-7}) {
        const Composition composition{{{1, 4, 9}}, {{each, failing, std::uint64_t(n)}}};
        const double epsilon = 1.25;
        const auto result = contour_delta(composition, kRemove, epsilon);
        ASSERT_TRUE(result);
        long double sum = 0, binomial = 1;
        const long double p = 1 / (1 + expl(-static_cast<long double>(each)));
        for (int k = 0; k <= n; ++k) {
          const long double weight = binomial * powl(p, k) * powl(1 - p, n - k);
          sum += weight *
                 gaussian_delta(0.75L, epsilon - (2 * k - n) * static_cast<long double>(each));
          binomial = binomial * (n - k) / (k + 1);
        }
        const long double survive = expl(n * log1pl(-static_cast<long double>(failing)));
        const long double exact = 1 - survive + survive * sum;
        EXPECT_LE(result->value.lower, exact * (1 + 1e-16L));
        EXPECT_GE(result->value.upper, exact * (1 - 1e-16L));
        EXPECT_LT(result->value.upper - result->value.lower, 1e-8L * exact);
      }
    }
  }
}

TEST(Contour, ContainsTheClosedFormOfOneSubsampledStepWhenItCertifiesOne) {
  int certified = 0;
  for (const double q : {.1, .3, .6, .9}) {
    for (const double sigma : {.5, 1., 2.}) {
      for (const double epsilon : {.1, .5, 1.}) {
        const long double lq = q, v = static_cast<long double>(sigma) * sigma;
        const auto result = contour_delta(steps(q, sigma, 1), kRemove, epsilon, 1e-6);
        if (!result) continue;
        ++certified;
        const long double x = v * log1pl(expm1l(epsilon) / lq) + 0.5L;
        const long double exact =
            lq * normal_tail((x - 1) / sigma) + (1 - lq - expl(epsilon)) * normal_tail(x / sigma);
        EXPECT_LE(result->value.lower, exact * (1 + 1e-15L));
        EXPECT_GE(result->value.upper, exact * (1 - 1e-15L));
      }
    }
  }
  RecordProperty("certified", certified);
}

// The slow label asks for more settings.
int times(int settings) {
  return std::getenv("DISCREET_MORE_POINTS") == nullptr ? settings : 12 * settings;
}

// One seed per case, so that they can run side by side.
class ContourAgainstBrute : public testing::TestWithParam<int> {};

TEST_P(ContourAgainstBrute, ContainsTheReferenceOnRandomSteps) {
  Draw draw(static_cast<std::uint64_t>(GetParam()));
  Tally tally;
  for (int i = 0; i < times(40); ++i) {
    const Composition composition = steps(draw(1e-4, .9), draw(.4, 20), draw.count(8, 1e6));
    const double delta = draw(1e-13, .01);
    for (const Direction direction : {kRemove, kAdd}) {
      const auto result = contour_epsilon(composition, direction, delta);
      if (result) compare(composition, direction, delta, *result, tally);
    }
  }
  EXPECT_EQ(tally.outside, 0);
  EXPECT_GE(tally.inside, 40);
}

TEST_P(ContourAgainstBrute, ContainsTheReferenceOnRandomMixtures) {
  Draw draw(static_cast<std::uint64_t>(1000 + GetParam()));
  Tally tally;
  for (int i = 0; i < times(10); ++i) {
    Composition composition;
    for (auto k = draw.count(2, 6); k > 0; --k) {
      composition.gaussians.push_back({draw(1e-4, .9), draw(.4, 20), draw.count(8, 1e5)});
    }
    const double delta = draw(1e-13, .01);
    if (draw.coin()) composition.gaussians.push_back({1, draw(2, 50), draw.count(1, 20)});
    if (draw.coin()) {
      composition.explicits.push_back({draw(.01, 1), delta * draw(1e-5, .05), draw.count(1, 8)});
    }
    composition = sorted(composition);
    for (const Direction direction : {kRemove, kAdd}) {
      const auto result = contour_epsilon(composition, direction, delta);
      if (result) compare(composition, direction, delta, *result, tally);
    }
  }
  EXPECT_EQ(tally.outside, 0);
  EXPECT_GE(tally.inside, 10);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ContourAgainstBrute, testing::Range(1, 4));

// With one parameter spoilt, one source of error is far larger than round-off: the interval holds
// only if the bound of that source does.
TEST(Contour, StaysCorrectWhenOneParameterIsSpoilt) {
  struct Case {
    const char* name;
    contour::Spoil spoil;
  };
  const Case cases[] = {{"h x 1.5", {.node_distance = 1.5}},
                        {"h x 1.65", {.node_distance = 1.65}},
                        {"R x 0.5", {.spacing = 4}},
                        {"R x 0.35", {.spacing = 6}},
                        {"J x 0.6", {.cut = -3}},
                        {"J x 0.42", {.cut = -5}},
                        {"window x 0.6", {.window = .6}},
                        {"window x 0.5", {.window = .5}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Draw draw(5);
    Tally tally;
    std::vector<double> widths;
    for (int i = 0; i < times(24); ++i) {
      const Composition composition = steps(draw(1e-3, .5), draw(.5, 5), draw.count(30, 1e5));
      const double delta = draw(1e-10, .001);
      for (const Direction direction : {kRemove, kAdd}) {
        contour::Totals totals(direction);
        const auto result = contour::query_epsilon(totals, composition, delta, 1e-10, c.spoil);
        if (!result) continue;
        compare(composition, direction, delta, *result, tally);
        widths.push_back((result->value.upper - result->value.lower) / result->value.upper);
      }
    }
    EXPECT_EQ(tally.outside, 0);
    EXPECT_GE(tally.inside, 10);
    ASSERT_FALSE(widths.empty());
    std::sort(widths.begin(), widths.end());
    // The spoilt source must really dominate: unspoilt widths are near 1e-11.
    EXPECT_GT(widths[widths.size() / 2], 1e-8);
  }
}

TEST(Contour, IsCorrectOrDeclinesInHardRegions) {
  Tally tally;
  int certified = 0;
  for (const double rate : {1e-7, 1e-4, .02, .5}) {
    for (const double sigma : {.3, 1., 10., 100.}) {
      for (const std::uint64_t count : {10ull, 1000ull, 10000000ull}) {
        for (const double delta : {1e-30, 1e-6, .1}) {
          for (const Direction direction : {kRemove, kAdd}) {
            const auto result = contour_epsilon(steps(rate, sigma, count), direction, delta, 1e-8);
            if (!result) continue;
            ++certified;
            EXPECT_LE(result->value.lower, result->value.upper);
            EXPECT_GE(result->value.lower, 0);
            compare(steps(rate, sigma, count), direction, delta, *result, tally);
          }
        }
      }
    }
  }
  EXPECT_EQ(tally.outside, 0);
  EXPECT_GE(certified, 150);
  EXPECT_GE(tally.inside, 75);
}

TEST(Contour, AnswersZeroWhereDeltaAtZeroIsSmallEnough) {
  // One composition with delta(0) known from contour_delta: below it zero, above it positive.
  const Composition composition = steps(.001, 2, 100);
  const auto at_zero = contour_delta(composition, kRemove, 0);
  ASSERT_TRUE(at_zero);
  const auto zero = contour_epsilon(composition, kRemove, at_zero->value.upper * 1.01);
  ASSERT_TRUE(zero);
  EXPECT_EQ(zero->value.lower, 0);
  EXPECT_EQ(zero->value.upper, 0);
  const auto plainly = contour_epsilon(composition, kRemove, .1);
  ASSERT_TRUE(plainly);
  EXPECT_EQ(plainly->value.upper, 0);
  EXPECT_GE(plainly->delta_error, at_zero->value.lower);
  const auto positive = contour_epsilon(composition, kRemove, at_zero->value.lower * .99);
  ASSERT_TRUE(positive);
  EXPECT_GT(positive->value.lower, 0);
}

TEST(Contour, InvertsItself) {
  for (const Direction direction : {kRemove, kAdd}) {
    for (const double delta : {1e-12, 1e-5, 1e-3}) {
      const Composition composition = steps(.02, 1.3, 3000);
      const auto epsilon = contour_epsilon(composition, direction, delta);
      ASSERT_TRUE(epsilon);
      const auto above = contour_delta(composition, direction, epsilon->value.lower);
      const auto below = contour_delta(composition, direction, epsilon->value.upper);
      ASSERT_TRUE(above && below);
      EXPECT_GE(above->value.upper, delta);
      EXPECT_LE(below->value.lower, delta);
      EXPECT_NEAR(below->value.upper / delta, 1, 1e-8);
    }
  }
}

TEST(Contour, IsMonotoneInEveryParameter) {
  const auto upper = [](double q, double s, std::uint64_t n, double d) {
    return contour_epsilon(steps(q, s, n), kRemove, d)->value;
  };
  const Interval base = upper(.01, 1, 1000, 1e-5);
  EXPECT_GT(base.lower, upper(.01, 1 + 1e-9, 1000, 1e-5).upper);
  EXPECT_LT(base.upper, upper(.01 * (1 + 1e-9), 1, 1000, 1e-5).lower);
  EXPECT_LT(base.upper, upper(.01, 1, 1001, 1e-5).lower);
  EXPECT_GT(base.lower, upper(.01, 1, 1000, 1.00000001e-5).upper);
}

TEST(Contour, TreatsSplitCountsAndOneCountAlike) {
  // A step of the same rate with sigma one ulp away is a distinct event but the same to 1e-13.
  const auto whole = contour_epsilon(steps(.01, 1, 1000), kRemove, 1e-5);
  const Composition split{{{.01, 1, 400}, {.01, std::nextafter(1., 2.), 600}}, {}};
  const auto parts = contour_epsilon(split, kRemove, 1e-5);
  ASSERT_TRUE(whole && parts);
  EXPECT_LE(whole->value.lower, parts->value.upper);
  EXPECT_LE(parts->value.lower, whole->value.upper);
}

TEST(Contour, HoldsNothingThatIsFalseAndMostOfWhatIsPlain) {
  Draw draw(17);
  int asked = 0, held = 0;
  for (int i = 0; i < 60; ++i) {
    Composition composition = steps(draw(1e-3, .5), draw(.5, 10), draw.count(50, 1e5));
    if (draw.coin()) composition.gaussians.push_back({1, draw(20, 90), draw.count(1, 20)});
    if (draw.coin()) composition.explicits.push_back({draw(.01, .2), 1e-12, draw.count(1, 4)});
    const double delta = draw(1e-10, 1e-3);
    for (const Direction direction : {kRemove, kAdd}) {
      const auto exact = contour_epsilon(composition, direction, delta);
      if (!exact || !(exact->value.lower > 0)) continue;
      ++asked;
      const double low = exact->value.lower;
      for (const double part : {.2, .7, .9, .99, 1 - 1e-9}) {
        EXPECT_FALSE(contour_holds(composition, direction, low * part, delta));
      }
      const double high = exact->value.upper;
      held += contour_holds(composition, direction, 1.5 * high, delta);
      // What it holds at a smaller delta is true there too.
      for (const double smaller : {.5 * delta, .01 * delta}) {
        if (!contour_holds(composition, direction, 1.2 * high, smaller)) continue;
        const auto there = contour_delta(composition, direction, 1.2 * high, 1e-6);
        if (there) {
          EXPECT_LE(there->value.lower, smaller);
        }
      }
    }
  }
  EXPECT_GE(asked, 80);
  EXPECT_GE(10 * held, 9 * asked);
}

TEST(Contour, HasTheSameBitsOnEveryVectorTarget) {
  const Composition composition{{{.01, 1, 1000}, {.02, 1.5, 300}, {1, 9, 4}}, {{.05, 1e-8, 2}}};
  const auto reference = contour_epsilon(composition, kAdd, 1e-6);
  ASSERT_TRUE(reference);
  numerics::for_each_target([&] {
    const auto result = contour_epsilon(composition, kAdd, 1e-6);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->value.lower, reference->value.lower);
    EXPECT_EQ(result->value.upper, reference->value.upper);
  });
}

TEST(ContourSession, GivesTheBitsOfAFreshEvaluationWhateverTheHistory) {
  Draw draw(3);
  Composition composition;
  ContourSession session(kRemove);
  for (int i = 0; i < 30; ++i) {
    composition.gaussians.push_back({draw(.005, .05), draw(.8, 3), draw.count(10, 500)});
    if (i % 7 == 3) composition.explicits.push_back({draw(.01, .2), draw(1e-9, 1e-8), 1});
    if (i % 5 == 4) composition.gaussians.front().count += 17;
    if (i % 11 == 10) composition.gaussians.erase(composition.gaussians.begin() + i / 2);
    composition = sorted(composition);
    const auto kept = session.epsilon(composition, 1e-5);
    const auto fresh = contour_epsilon(composition, kRemove, 1e-5);
    ASSERT_TRUE(kept && fresh);
    EXPECT_EQ(kept->value.lower, fresh->value.lower);
    EXPECT_EQ(kept->value.upper, fresh->value.upper);
  }
}

TEST(ContourSession, FindsWhatChangedAmongManySteps) {
  // Enough steps to be compared in blocks; changes at both ends, inside, and of a count alone.
  Composition composition;
  for (int i = 0; i < 300; ++i) composition.gaussians.push_back({.01, 1 + .01 * i, 3});
  ContourSession session(kRemove), other(kAdd);
  const auto same_bits = [&] {
    const auto kept = session.epsilon(composition, 1e-5);
    const auto fresh = contour_epsilon(composition, kRemove, 1e-5);
    ASSERT_TRUE(kept && fresh);
    EXPECT_EQ(kept->value.lower, fresh->value.lower);
    EXPECT_EQ(kept->value.upper, fresh->value.upper);
    for (const double part : {.6, .7, .8, .9}) {
      const double epsilon = part * fresh->value.lower;
      EXPECT_EQ(other.holds(composition, epsilon, 1e-5),
                contour_holds(composition, kAdd, epsilon, 1e-5));
    }
  };
  auto& list = composition.gaussians;
  same_bits();
  list.insert(list.begin() + 130, {.01, list[129].sigma + .005, 2});
  same_bits();
  list.front().count = 5;
  list.back().count = 1;
  same_bits();
  list.erase(list.begin() + 64);
  same_bits();
  list.insert(list.begin(), {.009, 1, 1});
  list.push_back({1, 40, 2});
  same_bits();
  list.erase(list.begin(), list.begin() + 128);
  same_bits();
  list.resize(40);
  same_bits();
}

TEST(ContourSession, RefusesABadStepAfterGoodOnesAndStaysAsItWas) {
  Composition composition;
  for (int i = 0; i < 100; ++i) composition.gaussians.push_back({.01, 1 + .01 * i, 10});
  ContourSession session(kRemove);
  const auto before = session.epsilon(composition, 1e-5);
  Composition bad = composition;
  bad.gaussians[70].sigma = -1;
  EXPECT_THROW(session.epsilon(bad, 1e-5), Error);
  EXPECT_THROW(session.holds(bad, 1, 1e-5), Error);
  Composition beyond = composition;
  beyond.gaussians[70].sigma = 1e9;
  EXPECT_FALSE(session.epsilon(beyond, 1e-5));
  EXPECT_FALSE(session.epsilon(beyond, 1e-5));
  EXPECT_FALSE(session.holds(beyond, 100, 1e-5));
  const auto after = session.epsilon(composition, 1e-5);
  ASSERT_TRUE(before && after);
  EXPECT_EQ(after->value.lower, before->value.lower);
  EXPECT_EQ(after->value.upper, before->value.upper);
}

TEST(ContourSession, EvaluatesOnlyWhatChanged) {
  Composition composition;
  for (int i = 0; i < 50; ++i) composition.gaussians.push_back({.01, 1 + .01 * i, 40});
  ContourSession session(kRemove);
  const auto first = session.epsilon(composition, 1e-5);
  composition.gaussians.push_back({.01, 1.6, 1});
  const auto second = session.epsilon(composition, 1e-5);
  ASSERT_TRUE(first && second);
  EXPECT_LT(20 * second->nodes, first->nodes);
}

TEST(Contour, RefusesValuesOutsideTheirRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const Composition good = steps(.01, 1, 100);
  const auto refused = [](const Composition& composition, double delta, double width) {
    try {
      contour_epsilon(composition, kRemove, delta, width);
    } catch (const Error& error) {
      return error.code() == ErrorCode::kInvalidDpConfig;
    }
    return false;
  };
  for (const double delta : {nan, inf, 0., -1e-5, 1., 2.}) EXPECT_TRUE(refused(good, delta, 1e-9));
  for (const double delta : {nan, 0., 1.}) {
    EXPECT_THROW(contour_holds(good, kRemove, 1, delta), Error);
  }
  for (const double width : {nan, inf, 0., -1., 1.}) EXPECT_TRUE(refused(good, 1e-5, width));
  for (const double rate : {nan, inf, 0., -.1, 1.5}) {
    EXPECT_TRUE(refused(steps(rate, 1, 100), 1e-5, 1e-9));
  }
  for (const double sigma : {nan, inf, 0., -1.}) {
    EXPECT_TRUE(refused(steps(.01, sigma, 100), 1e-5, 1e-9));
  }
  EXPECT_TRUE(refused(steps(.01, 1, 0), 1e-5, 1e-9));
  EXPECT_TRUE(refused({}, 1e-5, 1e-9));
  for (const double epsilon : {nan, inf, -1.}) {
    EXPECT_TRUE(refused({{{.01, 1, 10}}, {{epsilon, 0, 1}}}, 1e-5, 1e-9));
    EXPECT_THROW(contour_delta(good, kRemove, epsilon), Error);
    EXPECT_THROW(contour_holds(good, kRemove, epsilon, 1e-5), Error);
  }
  for (const double delta : {nan, 1., -1e-9}) {
    EXPECT_TRUE(refused({{{.01, 1, 10}}, {{1, delta, 1}}}, 1e-5, 1e-9));
  }
}

TEST(Contour, DeclinesWhatItCannotCertify) {
  EXPECT_FALSE(contour_epsilon({{}, {{.1, 0, 5}}}, kRemove, 1e-5));               // atoms only
  EXPECT_FALSE(contour_epsilon({{{.01, 1, 100}}, {{.1, 1e-4, 5}}}, kAdd, 1e-5));  // epsilon = inf
  EXPECT_FALSE(contour_epsilon(steps(.01, 1e-3, 100), kRemove, 1e-5));
  EXPECT_FALSE(contour_epsilon(steps(.001, .6, 100), kRemove, 1e-6));
  EXPECT_FALSE(contour_epsilon(steps(.01, 1, 1ull << 60), kRemove, 1e-6));
}

}  // namespace
}  // namespace discreet::accounting
