#include "discreet/accounting/group_privacy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "discreet/accounting/calibrate.h"
#include "discreet/accounting/tradeoff/gdp.h"
#include "discreet/accounting/transform/subsampled_gaussian_impl.h"
#include "discreet/base/error.h"

namespace discreet::accounting {
namespace {

RepeatedEvent poisson(double rate, double sigma, std::uint64_t count) {
  return {Event(Gaussian{sigma}, Poisson{rate}, Adjacency::kAddRemove), count};
}

bool meets(const Interval& interval, double low, double high) {
  return interval.lower <= high && interval.upper >= low;
}

TEST(GroupPrivacy, OfOneRecordIsThatOfTheAccountant) {
  const Certified one = group_epsilon({poisson(.01, 1, 1000)}, 1, 1e-5);
  EXPECT_LE(one.value.lower, 1.828236666515);
  EXPECT_GE(one.value.upper, 1.828236666515);
  EXPECT_LT(one.error(), 1e-6);
}

// Values of dp-accounting 0.4 (MixtureGaussianPrivacyLoss, pessimistic, interval 1e-4).
TEST(GroupPrivacy, IsNearAnotherLibrarysMixture) {
  const double sigma = calibrate_noise_multiplier(4096 / 1e6, 1225, {2, 1e-7}).value;
  for (const auto& [size, published] : {std::pair(2, 3.92), {4, 7.71}, {10, 20.2}}) {
    const Interval found = group_epsilon({poisson(4096 / 1e6, sigma, 1225)}, size, 1e-7).value;
    EXPECT_NEAR(found.upper, published, 5e-3) << size;
    EXPECT_LT(found.upper - found.lower, 3e-4 * found.upper) << size;
  }
}

TEST(GroupPrivacy, OfFullBatchesIsOneGaussianOfKTimesTheSensitivity) {
  const Interval exact = gaussian_epsilon(3 * 2 / 12., 1e-5);
  for (const double rate : {1.0, std::nextafter(1.0, 0.0)}) {
    const Certified group = group_epsilon({poisson(rate, 12, 4)}, 3, 1e-5);
    EXPECT_TRUE(meets(group.value, exact.lower, exact.upper)) << rate;
    EXPECT_LT(group.error(), 3e-4 * group.value.upper);
  }
  const Event replaced(Gaussian{12}, NoSampling{}, Adjacency::kReplaceOne);
  const Interval twice = gaussian_epsilon(6 * 2 / 12., 1e-5);
  EXPECT_TRUE(meets(group_epsilon({{replaced, 4}}, 3, 1e-5).value, twice.lower, twice.upper));
}

// delta of one step against a group, all gradients alike, by the trapezoidal rule.
TEST(GroupPrivacy, IsTheTruthOfOneStep) {
  const double sigma = 2, q = .2, step = 1e-3;
  for (const std::uint64_t size : {2u, 3u, 7u}) {
    const Participation part = participation(q, size, 1e-300);
    const auto normal = [&](double x, double mean) {
      return std::exp(-(x - mean) * (x - mean) / (2 * sigma * sigma)) /
             (sigma * std::sqrt(2 * std::numbers::pi));
    };
    const auto with = [&](double x) {
      double sum = std::pow(1 - q, double(size)) * normal(x, 0),
             mass = std::pow(1 - q, double(size));
      for (std::uint64_t j = 1; j <= size; ++j) {
        mass *= double(size - j + 1) / double(j) * q / (1 - q);
        sum += mass * normal(x, double(j));
      }
      return sum;
    };
    for (const double delta : {1e-2, 1e-4, 1e-6}) {
      const Certified found = group_epsilon({poisson(q, sigma, 1)}, size, delta);
      const auto truth = [&](double epsilon) {
        double remove = 0, add = 0;
        for (double x = -30; x < 40; x += step) {
          remove += step * std::max(0., with(x) - std::exp(epsilon) * normal(x, 0));
          add += step * std::max(0., normal(x, 0) - std::exp(epsilon) * with(x));
        }
        return std::max(remove, add);
      };
      EXPECT_LE(truth(found.value.upper), delta * (1 + 1e-6)) << size << " " << delta;
      EXPECT_GE(truth(found.value.lower), delta * (1 - 1e-6)) << size << " " << delta;
      EXPECT_LT(found.error(), 3e-4 * found.value.upper);
    }
    EXPECT_NEAR(part.some + part.none, 1, 1e-14);
  }
}

TEST(GroupPrivacy, KnowsHowManyMembersTakePart) {
  for (const auto& [rate, size] : {std::pair(.3, 5), {1e-9, 3}, {.5, 2000}, {.999, 40}}) {
    const Participation part = participation(rate, std::uint64_t(size), 1e-300);
    double mean = 0, total = part.none;
    for (const auto& each : part.parts) {
      mean += part.some * each.share * each.members;
      total += part.some * each.share;
    }
    EXPECT_NEAR(total, 1, 1e-12);
    EXPECT_NEAR(mean / (rate * size), 1, 1e-11);
    EXPECT_LT(part.dropped, 1e-280);
    if (size < 100) {
      EXPECT_NEAR(part.none / std::exp(size * std::log1p(-rate)), 1, 1e-11);
    }
  }
  // What is cut off is known.
  const Participation cut = participation(.01, 1000, 1e-20);
  double kept = cut.none;
  for (const auto& each : cut.parts) kept += cut.some * each.share;
  EXPECT_LT(cut.parts.size(), 60u);
  EXPECT_GT(cut.dropped, 0);
  EXPECT_LT(cut.dropped, 1e-19);
}

// Below 1e-200 the mass of one member is lost in binary64: rejected by name, for groups alone.
TEST(GroupPrivacy, OfTinyRatesIsCertifiedOrRejected) {
  for (const double rate : {1e-201, 1e-299, 1e-301, 1e-305, 5e-324}) {
    for (const std::uint64_t size : {2ull, 10ull, 1ull << 32}) {
      try {
        static_cast<void>(group_epsilon({poisson(rate, 1, 1000)}, size, 1e-5));
        ADD_FAILURE() << "accepted " << rate;
      } catch (const Error& error) {
        EXPECT_NE(error.sentence().find("at least 1e-200"), std::string::npos) << error.sentence();
      }
    }
    EXPECT_LT(group_epsilon({poisson(rate, 1, 1000)}, 1, 1e-5).value.upper, 1e-6);
  }
  for (const double rate : {1e-200, 1e-150, 1e-30}) {
    const Interval epsilon = group_epsilon({poisson(rate, 1, 1000)}, 10, 1e-5).value;
    EXPECT_GE(epsilon.upper, 0);  // loose, as if members took part in every step
    EXPECT_LT(epsilon.upper, 1e3);
  }
}

TEST(GroupPrivacy, CoversSmallerGroups) {
  double before = 0;
  for (const std::uint64_t size : {1u, 2u, 3u, 5u, 8u, 40u}) {
    const Interval epsilon = group_epsilon({poisson(.01, 2, 1000)}, size, 1e-5).value;
    EXPECT_GT(epsilon.upper, before);
    before = epsilon.upper;
  }
}

// At a fixed delta epsilon grows faster than the group.
TEST(GroupPrivacy, IsNotKTimesTheEpsilonOfOne) {
  const std::vector<RepeatedEvent> run{poisson(.01, .6, 1000)};
  const double one = group_epsilon(run, 1, 1e-5).value.upper;
  EXPECT_GT(group_epsilon(run, 20, 1e-5).value.lower, 20 * one);
}

TEST(GroupPrivacy, ComposesStepsOfDifferentRatesAndNoise) {
  const std::vector<RepeatedEvent> mixed{poisson(.01, 1, 300), poisson(.02, 2, 300),
                                         poisson(1, 50, 4)};
  const Interval all = group_epsilon(mixed, 3, 1e-5).value;
  // Not below a part of it, not above the worst rate everywhere.
  EXPECT_GT(all.lower, group_epsilon({mixed[0]}, 3, 1e-5).value.upper);
  EXPECT_LT(all.upper,
            group_epsilon({poisson(.02, 1, 600), poisson(1, 50, 4)}, 3, 1e-5).value.lower);
  // The same in groups of parameters: sigma_eff.
  const GaussianGroups groups{{{2, 1}, {2, 1}}, {}, {}};
  const Event event(groups, Poisson{.01}, Adjacency::kZeroOut);
  const Interval parts = group_epsilon({{event, 300}}, 3, 1e-5).value;
  const Interval flat = group_epsilon({poisson(.01, std::sqrt(2), 300)}, 3, 1e-5).value;
  EXPECT_TRUE(meets(parts, flat.lower, flat.upper));
}

TEST(GroupPrivacy, DeltaAndEpsilonAgree) {
  const std::vector<RepeatedEvent> run{poisson(.01, 1, 1000)};
  const Interval epsilon = group_epsilon(run, 4, 1e-6).value;
  EXPECT_LE(group_delta(run, 4, epsilon.upper).value.lower, 1e-6);
  EXPECT_GE(group_delta(run, 4, epsilon.lower).value.upper, 1e-6);
  EXPECT_EQ(group_delta({poisson(1, 3, 2)}, 4, 1).path, Path::kClosedForm);
}

TEST(GroupPrivacy, ChainsAGuarantee) {
  const Event pure(Guarantee{.5, 0}, NoSampling{}, Adjacency::kAddRemove);
  const Interval three = group_epsilon({{pure, 1}}, 3, 1e-9).value;
  EXPECT_TRUE(meets(three, 1.5 - 1e-6, 1.5 + 1e-3)) << three.lower << " " << three.upper;
  const Event leaky(Guarantee{1, 1e-3}, NoSampling{}, Adjacency::kAddRemove);
  EXPECT_THROW(group_epsilon({{leaky, 1}}, 10, 1e-2), Error);
  // d (e^3 - 1)/(e - 1) = 1.1e-2
  EXPECT_TRUE(std::isinf(group_epsilon({{leaky, 1}}, 3, 1e-2).value.upper));
  EXPECT_LE(group_epsilon({{leaky, 1}}, 3, 1.2e-2).value.upper, 3.001);
}

TEST(GroupPrivacy, BoundsWholeEpochs) {
  const Event bins(Gaussian{4}, BallsAndBins{20}, Adjacency::kAddRemove);
  const Event shuffled(Gaussian{4}, ShuffledEpoch{20}, Adjacency::kZeroOut);
  const Event smaller(Gaussian{2}, BallsAndBins{20}, Adjacency::kAddRemove);
  PldAccountant joint(Adjacency::kAddRemove), one(Adjacency::kAddRemove);
  joint.add(smaller, 3);
  one.add(bins, 3);
  const Certified two = group_epsilon({{bins, 3}}, 2, 1e-5);
  EXPECT_EQ(two.path, Path::kBracket);
  EXPECT_NEAR(two.value.upper, joint.epsilon(1e-5).value.upper, 2e-3);
  EXPECT_LE(two.value.lower, one.epsilon(1e-5).value.upper);
  EXPECT_NEAR(group_epsilon({{shuffled, 3}}, 2, 1e-5).value.upper,
              gaussian_epsilon(2 * std::sqrt(3) / 4, 1e-5).upper, 1e-9);
  EXPECT_THROW(group_delta({{bins, 3}}, 2, 1), Error);
}

// Two balls in four bins by quadrature would be four-dimensional; two bins suffice for the bound.
TEST(GroupPrivacy, OfTwoBallsIsAboveTheTruth) {
  const double sigma = 3, step = .05;
  const Event bins(Gaussian{sigma}, BallsAndBins{2}, Adjacency::kAddRemove);
  const double upper = group_epsilon({{bins, 1}}, 2, 1e-3).value.upper;
  double remove = 0, add = 0;
  const auto ratio = [&](double x, double a) { return (2 * a * x - a * a) / (2 * sigma * sigma); };
  for (double x = -24; x < 28; x += step) {
    for (double y = -24; y < 28; y += step) {
      const double q = std::exp(-(x * x + y * y) / (2 * sigma * sigma)) /
                       (2 * std::numbers::pi * sigma * sigma) * step * step;
      const double m = .25 * std::exp(ratio(x, 2)) + .25 * std::exp(ratio(y, 2)) +
                       .5 * std::exp(ratio(x, 1) + ratio(y, 1));
      remove += q * std::max(0., m - std::exp(upper));
      add += q * std::max(0., 1 - std::exp(upper) * m);
    }
  }
  EXPECT_LE(remove, 1e-3);
  EXPECT_LE(add, 1e-3);
  EXPECT_GT(remove, 1e-5);  // the test can fail
}

TEST(GroupPrivacy, ChargesTheDistanceAtTheEpsilonThatItReturns) {
  const std::vector<RepeatedEvent> run{poisson(.01, 1, 1000)};
  const Interval ideal = group_epsilon(run, 10, 1e-5).value;
  const double distance = 1e-6 / (1 + std::exp(ideal.upper));
  const Interval real = group_epsilon(run, 10, 1e-5, distance).value;
  // At most a tenth of delta and a little more.
  EXPECT_GT(real.upper, group_epsilon(run, 10, 9.01e-6).value.lower);
  EXPECT_LT(real.upper, group_epsilon(run, 10, 8e-6).value.upper);
  const double spent = group_delta(run, 10, real.upper).value.lower;
  EXPECT_LE(spent + distance * (1 + std::exp(real.upper)), 1e-5);
  // e^epsilon of a large group takes all of delta.
  EXPECT_THROW(group_epsilon(run, 40, 1e-5, 1e-28), Error);
}

TEST(GroupPrivacy, OfAHugeGroupIsStillAnswered) {
  for (const std::uint64_t size : {1000u, 1'000'000u}) {
    const Certified found = group_epsilon({poisson(.01, 1, 1000)}, size, 1e-5);
    EXPECT_GT(found.value.upper, 1e4);
    EXPECT_TRUE(std::isfinite(found.value.upper));
  }
}

TEST(GroupPrivacy, IsCalibratedFor) {
  const Target target{2, 1e-6, 5};
  const auto found = calibrate_noise_multiplier(.01, 500, target);
  EXPECT_LE(group_epsilon({poisson(.01, found.value, 500)}, 5, 1e-6).value.lower, 2);
  EXPECT_GT(group_epsilon({poisson(.01, found.value * .999, 500)}, 5, 1e-6).value.upper, 2);
  const auto steps = calibrate_steps(.01, found.value, target);
  EXPECT_NEAR(double(steps.value), 500, 1);
  EXPECT_NEAR(calibrate_rate(found.value, 500, target).value, .01, 2e-6);
}

TEST(GroupPrivacy, RejectsByName) {
  const auto sentence = [](const Event& event) -> std::string {
    try {
      group_epsilon({{event, 10}}, 2, 1e-5);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
      return error.sentence();
    }
    return "";
  };
  constexpr auto kAdd = Adjacency::kAddRemove;
  EXPECT_NE(sentence({Gaussian{1}, FixedSize{10, 100}, kAdd}).find("fixed_size"),
            std::string::npos);
  EXPECT_NE(sentence({Gaussian{1}, FixedSize{10, 100}, Adjacency::kReplaceOne}).find("fixed_size"),
            std::string::npos);
  EXPECT_NE(sentence({Gaussian{1}, TruncatedPoisson{.1, 20, 100}, kAdd}).find("truncated_poisson"),
            std::string::npos);
  EXPECT_NE(sentence({Laplace{1}, Poisson{.1}, kAdd}).find("laplace"), std::string::npos);
  EXPECT_NE(sentence({Skellam{9, 1, 1, 1}, NoSampling{}, kAdd}).find("skellam"), std::string::npos);
  EXPECT_NE(sentence({DiscreteGaussian{1, 9}, Poisson{.1}, kAdd}).find("discrete_gaussian"),
            std::string::npos);
  EXPECT_THROW(group_epsilon({poisson(.01, 1, 1000)}, 0, 1e-5), Error);
  EXPECT_THROW(group_epsilon({poisson(.01, 1, 1000)}, (1ull << 32) + 1, 1e-5), Error);
  EXPECT_THROW(group_epsilon({poisson(.01, 1, 1000)}, 2, 0), Error);
  EXPECT_THROW(group_epsilon({poisson(.01, 1, 1000)}, 2, 1e-5, 1), Error);
}

}  // namespace
}  // namespace discreet::accounting
