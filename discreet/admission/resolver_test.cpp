#include "discreet/admission/resolver.h"

#include <gtest/gtest.h>
#include <mpfr.h>

#include <functional>
#include <random>

#include "discreet/accounting/accountant.h"
#include "discreet/admission/policy_testing.h"
#include "discreet/base/error_testing.h"

namespace discreet::admission {
namespace {
using testing::clinical;

// `count` layers "block.i" of a weight and a bias, an adapter, and a frozen head.
ModelLayout model(int count) {
  std::vector<Tensor> out;
  for (int i = 0; i < count; ++i) {
    const std::string name = "block." + std::to_string(i);
    out.push_back({.name = name + ".weight", .shape = {8, 4}});
    out.push_back({.name = name + ".bias", .shape = {8}});
  }
  out.push_back({.name = "lora.a", .shape = {4}, .adapter = "lora"});
  return ModelLayout(std::move(out));
}

Policy with_profile(DepthProfile profile) {
  Policy p = testing::policy();
  p.classes.at("clinical").profile = std::move(profile);
  return p;
}

std::vector<std::string> names(const RoutePlan& plan, const ModelLayout& layout) {
  std::vector<std::string> out;
  for (const auto& block : plan.blocks)
    for (const auto& t : block.tensors) out.push_back(layout.tensors()[t.tensor].name);
  return out;
}

// x^2 against k z^2 exactly, with z in units of 10^-9.
int compare_squared(double x, std::uint64_t k, std::uint64_t z_units) {
  mpfr_t left, right;
  mpfr_inits2(600, left, right, nullptr);
  mpfr_set_d(left, x, MPFR_RNDN);
  mpfr_sqr(left, left, MPFR_RNDN);
  mpfr_mul_ui(left, left, 1'000'000'000, MPFR_RNDN);
  mpfr_mul_ui(left, left, 1'000'000'000, MPFR_RNDN);
  mpfr_set_ui(right, z_units, MPFR_RNDN);
  mpfr_sqr(right, right, MPFR_RNDN);
  mpfr_mul_ui(right, right, k, MPFR_RNDN);
  const int sign = mpfr_cmp(left, right);
  mpfr_clears(left, right, nullptr);
  return sign;
}

// (sum_b c_b^2 / s_b^2) k z^2 <= 1 and sum_b c_b^2 <= C^2 in exact arithmetic (flat: c^2/min s^2).
void expect_promise(const RoutePlan& plan, const Descriptor& d) {
  mpfr_t spend, norm, x, y;
  mpfr_inits2(3000, spend, norm, x, y, nullptr);
  mpfr_set_ui(spend, 0, MPFR_RNDN);
  mpfr_set_ui(norm, 0, MPFR_RNDN);
  for (const auto& b : plan.blocks) {
    mpfr_set_d(x, b.clip, MPFR_RNDN);
    mpfr_set_d(y, b.stddev, MPFR_RNDN);
    mpfr_div(y, x, y, MPFR_RNDU);
    mpfr_sqr(y, y, MPFR_RNDU);
    mpfr_sqr(x, x, MPFR_RNDU);
    if (plan.flat_clip) {
      mpfr_max(spend, spend, y, MPFR_RNDU);
      mpfr_max(norm, norm, x, MPFR_RNDU);
    } else {
      mpfr_add(spend, spend, y, MPFR_RNDU);
      mpfr_add(norm, norm, x, MPFR_RNDU);
    }
  }
  mpfr_set_ui(x, d.noise_multiplier.units, MPFR_RNDN);
  mpfr_div_ui(x, x, 1'000'000'000, MPFR_RNDU);
  mpfr_sqr(x, x, MPFR_RNDU);
  mpfr_mul(spend, spend, x, MPFR_RNDU);
  mpfr_mul_ui(spend, spend, d.occurrences, MPFR_RNDU);
  EXPECT_LE(mpfr_cmp_ui(spend, 1), 0);
  mpfr_set_ui(x, d.clip_norm.units, MPFR_RNDN);
  mpfr_div_ui(x, x, 1'000'000'000, MPFR_RNDD);
  mpfr_sqr(x, x, MPFR_RNDD);
  EXPECT_LE(mpfr_cmp(norm, x), 0);
  mpfr_clears(spend, norm, x, y, nullptr);
}

TEST(Resolver, KeepsThePromiseInExactArithmeticWhateverTheNumbers) {
  const ModelLayout layout = model(10);
  std::mt19937_64 random(1);
  const auto draw = [&](std::uint64_t least, std::uint64_t most) {
    const double low = std::log(static_cast<double>(least));
    const double high = std::log(static_cast<double>(most));
    const double u = std::uniform_real_distribution<double>(0, 1)(random);
    return static_cast<std::uint64_t>(std::exp(low + u * (high - low)));
  };
  for (int i = 0; i < 2000; ++i) {
    Policy p = with_profile({WholeModel{}, {}, {}});
    ClassPolicy& c = p.classes.at("clinical");
    c.clip_norm = {Scaled::kMost};
    c.noise_multiplier = {1};
    c.most_occurrences = 0xffffffff;
    p.noise = {draw(1000, 1'000'000'000'000)};
    for (int b = static_cast<int>(draw(1, 6)); b > 1; --b)
      p.blocks["block." + std::to_string(b)] = {draw(1000, 1'000'000'000'000)};
    p.clipping = i % 2 == 0 ? BlockClipping::kFlat : BlockClipping::kPerBlock;
    Descriptor d = clinical();
    d.clip_norm = {draw(1, 1'000'000'000'000)};
    d.noise_multiplier = {draw(1'000'000, 100'000'000'000)};
    d.occurrences = static_cast<std::uint32_t>(draw(1, 1'000'000));
    const Resolution r = resolve(p, d, layout);
    expect_promise(r.plan, d);
    EXPECT_GE(compare_squared(r.required_multiplier, d.occurrences, d.noise_multiplier.units), 0);
    EXPECT_GE(r.use_multiplier, r.required_multiplier);
    // And not far from the best: rounding costs less than 2e-12 where the noise binds.
    if (p.blocks.empty() && r.plan.blocks[0].clip < 0.999 * d.clip_norm.nearest()) {
      EXPECT_NEAR(r.use_multiplier / r.required_multiplier, 1, 2e-12);
    }
  }
}

TEST(Resolver, ARecordIsCutToTheLesserOfItsBoundAndTheNoise) {
  Policy p = with_profile({WholeModel{}, {}, {}});
  p.noise = parse_scaled("2", "s");
  const ModelLayout layout = model(10);
  Descriptor d = clinical();  // C = 0.5, z = 1, k = 20
  EXPECT_NEAR(*resolve(p, d, layout).plan.flat_clip, 2 / std::sqrt(20.0), 1e-11);
  d.occurrences = 4;
  EXPECT_EQ(*resolve(p, d, layout).plan.flat_clip, 0.5);
  // A stricter record is clipped more and does not raise the noise.
  d.noise_multiplier = parse_scaled("100", "z");
  const Resolution strict = resolve(p, d, layout);
  EXPECT_NEAR(*strict.plan.flat_clip, 0.01, 1e-11);
  EXPECT_EQ(strict.plan.blocks[0].stddev, 2);
}

// All uses together, in any pattern, against one Gaussian release: by the accountant, which knows
// nothing of the resolver's formula.
TEST(Resolver, AllUsesTogetherCostNoMoreThanOneGaussianRelease) {
  const ModelLayout layout = model(10);
  for (const BlockClipping clipping : {BlockClipping::kFlat, BlockClipping::kPerBlock})
    for (const std::uint32_t k : {1u, 2u, 7u, 20u}) {
      Policy p = with_profile({WholeModel{}, {}, {}});
      p.clipping = clipping;
      p.blocks = {{"block.1", parse_scaled("0.3", "s")}, {"block.2", parse_scaled("5", "s")}};
      Descriptor d = clinical();
      d.occurrences = k;
      const Resolution r = resolve(p, d, layout);
      const auto epsilon = [](const accounting::Mechanism& mechanism, std::uint64_t count) {
        const auto accountant = accounting::make_accountant("pld");
        accountant->compose({mechanism, accounting::NoSampling{}, accounting::Adjacency::kZeroOut},
                            count);
        return accountant->epsilon(1e-5).epsilon;
      };
      const auto once = epsilon(accounting::Gaussian{1.0}, 1);
      EXPECT_LE(epsilon(noise_of_use(r.plan), r.most_uses).lower, once.upper);
      EXPECT_LE(epsilon(noise_of_use(r.plan), r.most_uses).upper, once.upper * (1 + 1e-9));
      // One use more breaks it where the noise binds.
      if (clipping == BlockClipping::kFlat) {
        EXPECT_GT(epsilon(noise_of_use(r.plan), r.most_uses + 1).lower, once.upper);
      }
      EXPECT_GE(*r.gdp_mu, 1);
    }
}

TEST(Resolver, AmplifiedClassesGetTheCertifiedMultiplierOfTheirSampler) {
  Descriptor d = clinical();
  d.data_class = "diary";
  d.promise = Promise::kAmplified;
  d.occurrences = 1000;
  const Resolution r = resolve(testing::policy(), d, model(10));
  EXPECT_NEAR(r.required_multiplier, 0.713, 0.001);  // 4.47 for 20 uses without amplification
  EXPECT_EQ(r.most_uses, 1000u);
  EXPECT_LE(r.amplified_epsilon->upper, r.gaussian_epsilon->lower);
  EXPECT_FALSE(r.gdp_mu);
  d.promise = Promise::kEveryPattern;
  EXPECT_SAYS(refusal([&] { resolve(testing::policy(), d, model(10)); }, ErrorCode::kInvalidInput),
              "more permissive");
}

TEST(Resolver, RefusesBoundsMorePermissiveThanTheClass) {
  for (const auto& change : std::vector<std::function<void(Descriptor&)>>{
           [](Descriptor& d) { d.clip_norm.units++; },
           [](Descriptor& d) { d.noise_multiplier.units--; },
           [](Descriptor& d) { d.occurrences++; }}) {
    Descriptor d = clinical();
    change(d);
    EXPECT_SAYS(
        refusal([&] { resolve(testing::policy(), d, model(10)); }, ErrorCode::kInvalidInput),
        "more permissive");
  }
}

TEST(Profile, TheUpperThirtyPercentAreTheLayersThatLieWholeInIt) {
  for (const auto& [layers, first] : {std::pair{10, 7}, {12, 9}, {4, 3}, {100, 70}, {13, 10}}) {
    const Resolution r = resolve(testing::policy(), clinical(), model(layers));
    ASSERT_EQ(r.stack, static_cast<std::size_t>(layers));
    EXPECT_EQ(r.layers.front(), "block." + std::to_string(first));
    EXPECT_EQ(r.layers.back(), "block." + std::to_string(layers - 1));
    EXPECT_LE(r.layers.size() * 10, static_cast<std::size_t>(layers) * 3);
  }
  EXPECT_SAYS(refusal([] { resolve(testing::policy(), clinical(), model(3)); }), "widen the band");
}

TEST(Profile, AnAbsoluteBandHasBothItsEnds) {
  const ModelLayout layout = model(6);
  const Resolution r = resolve(with_profile({LayerBand{2, 4}, {}, {}}), clinical(), layout);
  EXPECT_EQ(r.layers, (std::vector<std::string>{"block.2", "block.3", "block.4"}));
  EXPECT_SAYS(refusal([&] {
                resolve(with_profile({LayerBand{2, 6}, {}, {}}), clinical(), layout);
              }),
              "has 6 layers");
}

TEST(Profile, ASparseSetTakesOneTowerAndNotTheOther) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 3; ++i)
    for (const char* tower : {"vision.", "language."})
      tensors.push_back({.name = tower + std::to_string(i) + ".weight", .shape = {2}});
  const ModelLayout layout(tensors);
  const Resolution r = resolve(with_profile({ModuleSet{{"vision"}}, {}, {}}), clinical(), layout);
  EXPECT_EQ(r.layers, (std::vector<std::string>{"vision.0", "vision.1", "vision.2"}));
  const Resolution s =
      resolve(with_profile({ModuleSet{{"vision.0", "language.2"}}, {}, {}}), clinical(), layout);
  EXPECT_EQ(s.layers, (std::vector<std::string>{"vision.0", "language.2"}));
  EXPECT_SAYS(refusal([&] {
                resolve(with_profile({ModuleSet{{"visoin.0"}}, {}, {}}), clinical(), layout);
              }),
              "did you mean vision.0");
}

TEST(Profile, AnAdapterBoundClassNeverTouchesBaseWeights) {
  const ModelLayout layout = model(4);
  Descriptor d = clinical();
  d.adapter = "lora";
  const Resolution r = resolve(with_profile({AdapterBound{""}, {}, {}}), d, layout);
  EXPECT_EQ(names(r.plan, layout), std::vector<std::string>{"lora.a"});
  EXPECT_EQ(resolve(with_profile({AdapterBound{"lora"}, {}, {}}), clinical(), layout).plan, r.plan);
  d.adapter = "lara";
  EXPECT_SAYS(refusal([&] {
                resolve(with_profile({AdapterBound{""}, {}, {}}), d, layout);
              }),
              "did you mean lora");
}

ModelLayout attention() {
  return ModelLayout({{.name = "q", .shape = {8, 4}, .heads = Slices{8, 0}},
                      {.name = "k", .shape = {4, 4}, .heads = Slices{2, 0}},
                      {.name = "o", .shape = {4, 8}, .heads = Slices{8, 1}},
                      {.name = "up", .shape = {6, 4, 4}, .experts = Slices{6, 0}},
                      {.name = "norm", .shape = {4}}});
}

TEST(Profile, AHeadMaskTakesKeyHeadsOnlyIfAllTheyServeArePermitted) {
  const ModelLayout layout = attention();
  const auto plan = [&](std::vector<std::uint32_t> heads) {
    return resolve(with_profile({WholeModel{}, std::move(heads), {}}), clinical(), layout).plan;
  };
  EXPECT_EQ(names(plan({0, 1}), layout), (std::vector<std::string>{"q", "o"}));
  const RoutePlan all_of_group = plan({0, 1, 2, 3, 7});
  EXPECT_EQ(names(all_of_group, layout), (std::vector<std::string>{"q", "k", "o"}));
  EXPECT_EQ(all_of_group.blocks[0].tensors[1].masks[0].permitted, std::vector<std::uint32_t>{0});
  EXPECT_EQ(all_of_group.blocks[0].tensors[2].masks[0].slices, (Slices{8, 1}));
  EXPECT_SAYS(refusal([&] { plan({8}); }), "permits head 8");
}

TEST(Profile, AnExpertMaskTakesTheseExpertsAndNothingElse) {
  const ModelLayout layout = attention();
  const RoutePlan plan = resolve(with_profile({WholeModel{}, {}, {1, 5}}), clinical(), layout).plan;
  EXPECT_EQ(names(plan, layout), std::vector<std::string>{"up"});
  EXPECT_EQ(plan.blocks[0].tensors[0].masks[0].permitted, (std::vector<std::uint32_t>{1, 5}));
}

TEST(Profile, PublicAndFrozenTensorsAreNeverPermitted) {
  const ModelLayout layout({{.name = "a.w", .shape = {2}},
                            {.name = "b.w", .shape = {2}, .trainable = false},
                            {.name = "c.w", .shape = {2}, .is_public = true}});
  const Resolution r = resolve(with_profile({WholeModel{}, {}, {}}), clinical(), layout);
  EXPECT_EQ(names(r.plan, layout), std::vector<std::string>{"a.w"});
  EXPECT_SAYS(refusal([&] {
                resolve(with_profile({LayerBand{1, 2}, {}, {}}), clinical(), layout);
              }),
              "permits no privately trained tensor");
}

TEST(Profile, IsTheSameForEveryContributionOfAClass) {
  const ModelLayout layout = model(10);
  const auto reference = resolve(testing::policy(), clinical(), layout);
  Descriptor d = clinical(7);
  d.contributor = "someone else";
  d.not_after += 1000;
  EXPECT_EQ(hash_of(resolve(testing::policy(), d, layout).plan), hash_of(reference.plan));
  // Its own bound changes its clip norm, never what it may reach.
  d.noise_multiplier.units *= 3;
  const auto strict = resolve(testing::policy(), d, layout);
  EXPECT_EQ(names(strict.plan, layout), names(reference.plan, layout));
  EXPECT_NE(hash_of(strict.plan), hash_of(reference.plan));
}

TEST(RoutePlan, GoesToItsBytesAndBackAndIsCheckedAgainstTheLayout) {
  const ModelLayout layout = attention();
  Policy p = with_profile({WholeModel{}, {0, 1, 2, 3}, {2}});
  p.clipping = BlockClipping::kPerBlock;
  p.blocks = {{"up", parse_scaled("0.5", "s")}};
  const RoutePlan plan = resolve(p, clinical(), layout).plan;
  const Bytes bytes = encode(plan);
  EXPECT_EQ(decode_route_plan(bytes), plan);
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_THROW(decode_route_plan(ByteView(bytes).first(n)), Error);
  EXPECT_THROW(check_route_plan(plan, model(3)), Error);
  RoutePlan wrong = plan;
  wrong.blocks[0].tensors[0].masks[0].permitted = {99};
  EXPECT_THROW(check_route_plan(wrong, layout), Error);
  wrong = plan;
  wrong.blocks[0].stddev = 0;
  EXPECT_THROW(decode_route_plan(encode(wrong)), Error);
}

}  // namespace
}  // namespace discreet::admission
