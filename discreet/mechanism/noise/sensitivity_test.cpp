#include "discreet/mechanism/noise/sensitivity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <type_traits>

#include "discreet/accounting/accountant.h"
#include "discreet/base/error_testing.h"
#include "discreet/mechanism/clip/clip.h"
#include "discreet/mechanism/noise/part_values.h"

namespace discreet::mechanism {
namespace {

// Raw statistics cannot steer the mechanism without a declared origin, and norms are not shares.
static_assert(!std::is_constructible_v<NormHistory, std::vector<double>>);
static_assert(!std::is_convertible_v<RecordNorms, NormHistory>);
static_assert(!std::is_convertible_v<RoutingStats, NormHistory>);

ModelLayout model() {
  return ModelLayout({{.name = "frozen.weight", .shape = {50}, .trainable = false},
                      {.name = "block.0.weight", .shape = {10, 10}, .group = "body"},
                      {.name = "block.0.bias", .shape = {10}, .group = "body"},
                      {.name = "block.1.weight", .shape = {10, 10}, .group = "body"},
                      {.name = "experts.weight", .shape = {4, 25}, .experts = Slices{4, 0}},
                      {.name = "head.weight", .shape = {20}}});
}

DpConfig config_of(ClipStrategy strategy) {
  DpConfig config;
  config.clip_strategy = strategy;
  config.clip_norm = 3;
  return config;
}

TEST(Sensitivity, WithoutNormsIsTheClipBound) {
  const auto flat = analyze_sensitivity(config_of(ClipStrategy::kPerSample), model());
  EXPECT_EQ(flat.sensitivity, std::vector<double>{3});
  DpConfig config = config_of(ClipStrategy::kPerLayer);
  config.clip_norm_map = NumberMap{{"head", 0.25}};
  const auto layers = analyze_sensitivity(config, model());
  EXPECT_EQ(layers.partition.names,
            (std::vector<std::string>{"block.0", "block.1", "experts", "head"}));
  EXPECT_EQ(layers.sensitivity, (std::vector<double>{1.5, 1.5, 1.5, 0.25}));
  EXPECT_EQ(layers.source[0], SensitivitySource::kClipBound);
}

TEST(Sensitivity, FollowsPublicOrNoisedNormsAndADeclarationFirst) {
  DpConfig config = config_of(ClipStrategy::kPerGroup);
  config.sensitivity_map = NumberMap{{"head", 7}};
  const NormHistory norms = NormHistory::from_noised_release({1, 2, 3});
  const auto map = analyze_sensitivity(config, model(), &norms);
  EXPECT_EQ(map.partition.names, (std::vector<std::string>{"body", "experts", "head"}));
  EXPECT_EQ(map.sensitivity, (std::vector<double>{1, 2, 7}));
  EXPECT_EQ(map.source, (std::vector<SensitivitySource>{SensitivitySource::kNoisedNorms,
                                                        SensitivitySource::kNoisedNorms,
                                                        SensitivitySource::kDeclared}));
  const NormHistory open = NormHistory::from_public({1, 2, 3});
  EXPECT_EQ(analyze_sensitivity(config, model(), &open).source[0], SensitivitySource::kPublicNorms);
}

TEST(Sensitivity, OfExpertsDoesNotFollowTheRouting) {
  const DpConfig config = config_of(ClipStrategy::kPerTensor);
  const auto plain = analyze_sensitivity(config, model());
  for (const auto& shares : {std::vector<double>{0.25, 0.25, 0.25, 0.25}, {1, 0, 0, 0}}) {
    const RoutingStats routing = RoutingStats::from_public(shares);
    EXPECT_EQ(analyze_sensitivity(config, model(), nullptr, &routing).sensitivity,
              plain.sensitivity);
    EXPECT_EQ(effective_sampling_rate(0.01, &routing), 0.01);
  }
}

TEST(Sensitivity, ARoutingAwareRateWouldClaimFarTooLittle) {
  const auto epsilon = [](double rate) {
    const auto accountant = accounting::make_accountant("pld");
    accountant->compose(accounting::Event(accounting::Gaussian{1}, accounting::Poisson{rate},
                                          accounting::Adjacency::kAddRemove),
                        1000);
    return accountant->epsilon(1e-5).epsilon.upper;
  };
  const RoutingStats routing = RoutingStats::from_public({0.125});
  EXPECT_NEAR(epsilon(effective_sampling_rate(0.01, &routing)), 1.828, 0.002);
  EXPECT_NEAR(epsilon(0.01 / 8), 0.190, 0.001);
}

TEST(Sensitivity, RefusesNumbersThatAreNoneAndNamesThem) {
  const DpConfig config = config_of(ClipStrategy::kPerGroup);
  for (const auto& bad : {std::vector<double>{1, 2}, {1, 2, 0}, {1, 2, HUGE_VAL}, {1, -2, 3}}) {
    const NormHistory norms = NormHistory::from_public(bad);
    EXPECT_NE(refusal([&] { analyze_sensitivity(config, model(), &norms); }), "");
  }
  for (const auto& bad : {std::vector<double>{0.5, 0.5}, {0.5, 0.5, 0, 1.5}}) {
    const RoutingStats routing = RoutingStats::from_public(bad);
    EXPECT_NE(refusal([&] { analyze_sensitivity(config, model(), nullptr, &routing); }), "");
  }
  DpConfig zero = config;
  zero.clip_norm = 0;
  EXPECT_EQ(refusal([&] { analyze_sensitivity(zero, model()); }),
            "clipping.norm is 0; it must be finite and positive");
}

TEST(PartValues, AKeyMayNameAPartATensorALayerAGroupOrAModule) {
  const ModelLayout layout = model();
  const auto values = [&](Cut cut, const NumberMap& map) {
    std::vector<double> out;
    for (const auto& v : values_by_part(layout, partition(layout, cut), map, "sigma_map"))
      out.push_back(v.value_or(0));
    return out;
  };
  EXPECT_EQ(values(Cut::kFlat, {{"all", 2}}), (std::vector<double>{2}));
  EXPECT_EQ(values(Cut::kTensor, {{"block.0", 2}}), (std::vector<double>{2, 2, 0, 0, 0}));
  EXPECT_EQ(values(Cut::kTensor, {{"block", 2}, {"block.0.bias", 5}, {"block.0", 3}}),
            (std::vector<double>{3, 5, 2, 0, 0}));
  EXPECT_EQ(values(Cut::kTensor, {{"body", 4}}), (std::vector<double>{4, 4, 4, 0, 0}));
  EXPECT_EQ(values(Cut::kGroup, {{"block", 4}}), (std::vector<double>{4, 0, 0}));
}

TEST(PartValues, RefuseMisspeltFrozenAndPartialNames) {
  const ModelLayout layout = model();
  const auto sentence = [&](const NumberMap& map) {
    return refusal(
        [&] { values_by_part(layout, partition(layout, Cut::kGroup), map, "sigma_map"); });
  };
  EXPECT_EQ(sentence({{"haed", 1}}),
            "sigma_map names haed, which is not a private part of the model; did you mean head?");
  EXPECT_EQ(sentence({{"frozen", 1}}),
            "sigma_map names frozen, which is not a private part of the model");
  EXPECT_EQ(sentence({{"block.0", 1}}),
            "sigma_map names block.0, which is inside a part with a single value; use a "
            "clipping.strategy with finer parts, or name the part");
  EXPECT_EQ(sentence({{"head", -1}}), "sigma_map has -1 for head; it must be finite and positive");
  EXPECT_NE(sentence({{"head", std::nan("")}}), "");
}

}  // namespace
}  // namespace discreet::mechanism
