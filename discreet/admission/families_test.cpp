#include "discreet/admission/families.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "discreet/accounting/tradeoff/gdp.h"
#include "discreet/admission/policy_testing.h"
#include "discreet/admission/resolver.h"
#include "discreet/base/error.h"

namespace discreet::admission {
namespace {

long double normal_cdf(long double x) { return std::erfc(-x / std::sqrt(2.0L)) / 2; }

TEST(Families, LaplaceUsesAreTogetherNoWorseThanTheGaussian) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> size(-3, 3);
  for (int i = 0; i < 2000; ++i) {
    const auto k = static_cast<std::uint32_t>(std::exp(std::fabs(size(random)) * 3));
    const double z = std::exp(size(random));
    const double m = laplace_use(k, z);
    const long double e = std::sqrt(2.0L) / m;             // c/b of a use
    const long double mu = 1 / (std::sqrt(1.0L * k) * z);  // GDP that each may have
    // The tradeoff function of e-DP is above that of mu-GDP iff it is at its corner.
    const long double corner = 1 / (1 + std::exp(e));
    EXPECT_LE(normal_cdf(-mu / 2), corner) << k << " " << z;
    EXPECT_GT(normal_cdf(-mu / 2), 1 / (1 + std::exp(e * (1 + 1e-5L)))) << "more noise than needed";
  }
}

// delta(epsilon) of one Laplace release, in closed form, against that of the Gaussian.
TEST(Families, OneLaplaceUseIsBelowTheGaussianAtEveryEpsilon) {
  for (const double z : {.3, 1.0, 4.0, 30.0}) {
    const double e = std::sqrt(2.0) / laplace_use(1, z);
    for (double epsilon = 0; epsilon < e; epsilon += e / 37)
      EXPECT_LE(-std::expm1((epsilon - e) / 2), accounting::gaussian_delta(1 / z, epsilon).upper)
          << z << " " << epsilon;
  }
}

// Agarwal, Kairouz, Liu 2021, theorem 3.5.
long double skellam_renyi(int order, long double d, long double variance, long double dimension) {
  const long double l1 = std::min(d * d, std::sqrt(dimension) * d);
  return order * d * d / (2 * variance) +
         std::min(((2 * order - 1) * d * d + 6 * l1) / (4 * variance * variance),
                  3 * l1 / (2 * variance));
}

TEST(Families, SkellamUsesHaveNoMoreRenyiDivergenceThanTheGaussianAtAnyOrder) {
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> size(0, 1);
  for (int i = 0; i < 500; ++i) {
    const auto k = static_cast<std::uint32_t>(1 + 200 * size(random));
    const double z = std::exp(4 * size(random) - 2);
    const double stddev = std::exp(8 * size(random));
    const auto dimension = static_cast<std::uint64_t>(std::exp(12 * size(random)));
    const double m = skellam_use(k, z, stddev, dimension);
    ASSERT_TRUE(std::isfinite(m));
    EXPECT_GE(m, gaussian_use(k, z));
    const long double d = stddev / m, variance = 1.0L * stddev * stddev;
    long double most = 0;
    for (int order = 2; order < 2000; ++order) {
      const long double share =
          k * skellam_renyi(order, d, variance, dimension) * 2 * z * z / order;
      most = std::max(most, share);
    }
    EXPECT_LE(most, 1) << k << " " << z << " " << stddev << " " << dimension;
    EXPECT_GT(most, .99) << "more noise than needed";
  }
}

ModelLayout layout() {
  return ModelLayout({{.name = "a", .shape = {100}}, {.name = "b", .shape = {7}}});
}

TEST(Families, TheResolverCutsEachFamilyToItsOwnBoundAndSaysWhatItPromises) {
  using Family = NoiseFamily;
  Policy policy = testing::policy();
  policy.classes.at("clinical").profile = {WholeModel{}, {}, {}};
  policy.blocks.clear();
  const Descriptor d = testing::clinical();
  const Resolution gaussian = resolve(policy, d, layout());
  ASSERT_TRUE(gaussian.gdp_mu);
  for (const Family family :
       {Family::kLaplace, Family::kDiscreteGaussian, Family::kSkellam, Family::kRoundedGaussian}) {
    const Resolution r = resolve(policy, d, layout(), {family, 0x1p-6});
    const bool renyi = family == Family::kDiscreteGaussian || family == Family::kSkellam;
    EXPECT_EQ(r.gdp_mu.has_value(), !renyi);
    EXPECT_EQ(r.renyi_rho.has_value(), renyi);
    EXPECT_GE(r.use_multiplier, r.required_multiplier);
    const bool same = family == Family::kDiscreteGaussian || family == Family::kRoundedGaussian;
    EXPECT_EQ(r.required_multiplier == gaussian.required_multiplier, same);
    if (renyi) {
      const double z = d.noise_multiplier.nearest();
      EXPECT_NEAR(*r.renyi_rho, 1 / (2 * z * z), 1e-12);
    }
  }
  EXPECT_THROW(resolve(policy, d, layout(), {Family::kSkellam, 0}), Error);

  policy.blocks["b"] = {5'000'000'000};
  EXPECT_THROW(resolve(policy, d, layout(), {Family::kLaplace, 0}), Error);
  EXPECT_NO_THROW(resolve(policy, d, layout(), {Family::kRoundedGaussian, .5}));
}

}  // namespace
}  // namespace discreet::admission
