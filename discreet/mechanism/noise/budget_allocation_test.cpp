#include "discreet/mechanism/noise/budget_allocation.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>

#include "discreet/base/error_testing.h"
#include "discreet/layout/layouts_testing.h"
#include "discreet/mechanism/clip/adaptive_clip.h"

namespace discreet::mechanism {
namespace {

using accounting::effective_noise_multiplier;

ModelLayout model_of(const std::vector<std::uint64_t>& sizes) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    tensors.push_back({.name = "layer" + std::to_string(i) + ".weight", .shape = {sizes[i]}});
  return ModelLayout(std::move(tensors));
}

DpConfig config_of(ClipStrategy strategy, AllocationMode mode = AllocationMode::kUniform,
                   std::vector<double> clip = {}) {
  DpConfig config;
  config.clip_strategy = strategy;
  config.privacy_allocation = mode;
  if (!clip.empty()) config.clip_norm_map.emplace();
  for (std::size_t i = 0; i < clip.size(); ++i)
    (*config.clip_norm_map)["layer" + std::to_string(i)] = clip[i];
  return config;
}

Allocation allocate(const DpConfig& config, const ModelLayout& layout,
                    const NormHistory* norms = nullptr) {
  return allocate_budget(config, layout, analyze_sensitivity(config, layout, norms));
}

std::string refusal(const DpConfig& config, const ModelLayout& layout) {
  return discreet::refusal([&] { allocate(config, layout); });
}

TEST(BudgetAllocation, UniformGivesEveryPartTheSameSigma) {
  const ModelLayout layout = model_of({100, 400, 2500, 9});
  const Allocation parts = allocate(config_of(ClipStrategy::kPerLayer), layout);
  for (const double m : parts.multiplier) {
    EXPECT_GE(m, 2);
    EXPECT_NEAR(m, 2, 1e-12);
  }
  EXPECT_GE(effective_noise_multiplier(gaussian_groups(parts, 1.1)), 1.1);
  const Allocation flat = allocate(config_of(ClipStrategy::kPerSample), layout);
  EXPECT_EQ(flat.multiplier, std::vector<double>{1});
  EXPECT_EQ(gaussian_groups(flat, 1.1).groups[0].noise_multiplier, 1.1);
  EXPECT_EQ(effective_noise_multiplier(gaussian_groups(flat, 1.1)), 1.1);
}

TEST(BudgetAllocation, SumsOverPartsAreCompensatedAndDoNotDependOnTheOrderOfTensors) {
  // Of 1024 small parts and a large one, plain addition would lose every small one.
  constexpr std::size_t kSmall = 1024;
  std::vector<std::uint64_t> sizes(kSmall + 1, 1);
  sizes[0] = std::uint64_t{1} << 40;
  const ModelLayout layout = model_of(sizes);
  DpConfig config = config_of(ClipStrategy::kPerLayer);
  config.clip_norm_map.emplace();
  config.sensitivity_map.emplace();
  for (std::size_t i = 0; i <= kSmall; ++i) {
    const std::string name = "layer" + std::to_string(i);
    (*config.clip_norm_map)[name] = i == 0 ? 128.0 : 1.0;
    (*config.sensitivity_map)[name] = i == 0 ? 0x1p27 : 1.0;
  }
  const Allocation a = allocate(config, layout);
  const double sigma = a.multiplier[0];
  EXPECT_DOUBLE_EQ(noise_energy(a, 1) / (sigma * sigma), 0x1p54 + kSmall);
  EXPECT_NE(0x1p54 + kSmall, 0x1p54);
  config.clip_norm_map.reset();
  const Allocation shares = allocate(config, layout);
  EXPECT_DOUBLE_EQ(shares.plan.clip[1], 1 / std::sqrt(0x1p54 + kSmall));
  EXPECT_NE(shares.plan.clip[1], 0x1p-27);

  std::vector<Tensor> tensors;
  for (std::uint64_t i = 0; i < 999; ++i)
    tensors.push_back({.name = fmt::format("l{}.t{}", i % 7, i), .shape = {1 + 17 * i * i}});
  const DpConfig layers = config_of(ClipStrategy::kPerLayer, AllocationMode::kLayerWise);
  std::map<std::string, double> one, other;
  for (auto* multipliers : {&one, &other}) {
    const Allocation layer_wise = allocate(layers, ModelLayout(tensors));
    for (std::size_t g = 0; g < layer_wise.multiplier.size(); ++g)
      (*multipliers)[layer_wise.plan.partition.names[g]] = layer_wise.multiplier[g];
    std::ranges::reverse(tensors);
  }
  EXPECT_EQ(one, other);
}

TEST(BudgetAllocation, LayerWiseOfFixedPartsHasTheValuesOfTheFormula) {
  // C sqrt(d) = 10, 40, 25: sigma_g^2 = sum / (C sqrt(d)) at sigma_eff = 1, energy 75^2.
  const Allocation a =
      allocate(config_of(ClipStrategy::kPerLayer, AllocationMode::kLayerWise, {1, 2, 0.5}),
               model_of({100, 400, 2500}));
  EXPECT_NEAR(a.multiplier[0], std::sqrt(7.5), 1e-12);
  EXPECT_NEAR(a.multiplier[1], std::sqrt(1.875), 1e-12);
  EXPECT_NEAR(a.multiplier[2], std::sqrt(3.0), 1e-12);
  EXPECT_NEAR(noise_energy(a, 1), 75 * 75, 1e-8);
  EXPECT_NEAR(noise_energy(a, 2), 4 * 75 * 75, 1e-8);
  const Allocation u =
      allocate(config_of(ClipStrategy::kPerLayer, AllocationMode::kUniform, {1, 2, 0.5}),
               model_of({100, 400, 2500}));
  EXPECT_NEAR(noise_energy(u, 1), 3 * (100 + 4 * 400 + 0.25 * 2500), 1e-8);
}

// Any other allocation of the same sigma_eff, with or without a flat bound, has more energy.
TEST(BudgetAllocation, NoOtherAllocationBeatsLayerWise) {
  std::mt19937_64 random(21);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<std::uint64_t> sizes;
    std::vector<double> clip;
    for (int g = 0; g < 5; ++g) {
      sizes.push_back(1 + random() % 10000);
      clip.push_back(std::exp(2 * uniform(random)));
    }
    const ClipStrategy strategy = trial % 2 == 0 ? ClipStrategy::kHybrid : ClipStrategy::kPerLayer;
    DpConfig config = config_of(strategy, AllocationMode::kLayerWise, clip);
    config.clip_norm = std::exp(2 * uniform(random));
    const ModelLayout layout = model_of(sizes);
    const Allocation best = allocate(config, layout);
    const double least = noise_energy(best, 1);
    for (const double size : {1.0, 0.1, 0.01}) {
      config.privacy_allocation = AllocationMode::kCustom;
      config.sigma_map.emplace();
      for (std::size_t g = 0; g < 5; ++g)
        (*config.sigma_map)["layer" + std::to_string(g)] =
            best.multiplier[g] * std::exp(size * uniform(random));
      EXPECT_GE(noise_energy(allocate(config, layout), 1), least * (1 - 1e-12));
      config.sigma_map.reset();
    }
    config.privacy_allocation = AllocationMode::kUniform;
    EXPECT_GE(noise_energy(allocate(config, layout), 1), least * (1 - 1e-12));
  }
}

TEST(BudgetAllocation, NeverHasLessEffectiveNoiseThanAsked) {
  std::mt19937_64 random(22);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (const std::size_t parts : {1, 2, 3, 10, 100, 400}) {
    for (int trial = 0; trial < 30; ++trial) {
      std::vector<std::uint64_t> sizes;
      std::vector<double> clip;
      for (std::size_t g = 0; g < parts; ++g) {
        sizes.push_back(random() % 100000);
        clip.push_back(std::exp(5 * uniform(random)));
      }
      const auto mode = trial % 2 == 0 ? AllocationMode::kUniform : AllocationMode::kLayerWise;
      const auto strategy = trial % 3 == 0 ? ClipStrategy::kHybrid : ClipStrategy::kPerTensor;
      DpConfig config = config_of(strategy, mode, clip);
      config.clip_norm = std::exp(3 * uniform(random));
      const Allocation a = allocate(config, model_of(sizes));
      EXPECT_GE(a.effective, 1);
      for (int i = 0; i < 5; ++i) {
        const double sigma = std::exp(6 * uniform(random));
        const double effective = effective_noise_multiplier(gaussian_groups(a, sigma));
        ASSERT_GE(effective, sigma) << parts << " " << trial;
        ASSERT_LE(effective, sigma * (1 + 1e-11));
      }
    }
  }
}

TEST(BudgetAllocation, CustomKeepsTheRatiosOfTheMapAndTheSigmaThatWasAsked) {
  DpConfig config = config_of(ClipStrategy::kPerLayer, AllocationMode::kCustom);
  config.sigma_map = NumberMap{{"layer0", 3}, {"layer1", 4}};
  const Allocation a = allocate(config, model_of({10, 20}));
  EXPECT_NEAR(a.multiplier[1] / a.multiplier[0], 4.0 / 3, 1e-14);
  EXPECT_NEAR(1 / (a.multiplier[0] * a.multiplier[0]) + 1 / (a.multiplier[1] * a.multiplier[1]), 1,
              1e-12);
  config.sigma_map = NumberMap{{"layer0", 3}};
  EXPECT_EQ(refusal(config, model_of({10, 20})),
            "sigma_map has no value for layer1; add one for every part");
  config.sigma_map = NumberMap{{"layer0", 3}, {"layer1", 4}, {"layer7", 4}};
  EXPECT_EQ(
      refusal(config, model_of({10, 20})),
      "sigma_map names layer7, which is not a private part of the model; did you mean layer0?");
  config.sigma_map.reset();
  EXPECT_EQ(refusal(config, model_of({10, 20})), "privacy_allocation custom needs sigma_map");
  config = config_of(ClipStrategy::kPerLayer);
  config.sigma_map = NumberMap{{"layer0", 3}};
  EXPECT_NE(refusal(config, model_of({10, 20})), "");
}

TEST(BudgetAllocation, PerLayerMultipliersAreInWhatIsAccounted) {
  DpConfig config = config_of(ClipStrategy::kPerLayer);
  config.per_layer_multiplier = NumberMap{{"layer1", 0.5}};
  const Allocation a = allocate(config, model_of({10, 20}));
  EXPECT_NEAR(a.multiplier[0], std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(a.multiplier[1], std::sqrt(0.5), 1e-12);
  // 1/2 + 2: the noise that was removed is accounted.
  EXPECT_NEAR(a.effective, 1 / std::sqrt(2.5), 1e-12);
  EXPECT_NEAR(effective_noise_multiplier(gaussian_groups(a, 3)), 3 / std::sqrt(2.5), 1e-11);
}

TEST(BudgetAllocation, BoundsDivideTheNormOfARecordByTheNoisedNorms) {
  const ModelLayout layout = model_of({10, 20, 30});
  DpConfig config = config_of(ClipStrategy::kPerLayer);
  config.clip_norm = 7;
  const NormHistory norms = NormHistory::from_noised_release({1, 2, 2});
  const Allocation a = allocate(config, layout, &norms);
  EXPECT_NEAR(a.plan.clip[0], 7.0 / 3, 1e-14);
  EXPECT_NEAR(a.plan.clip[1], 14.0 / 3, 1e-14);
  EXPECT_FALSE(a.plan.flat_clip.has_value());
  // Hybrid: twice the share, inside the flat bound.
  config.clip_strategy = ClipStrategy::kHybrid;
  const Allocation h = allocate(config, layout, &norms);
  EXPECT_NEAR(h.plan.clip[0], 14.0 / 3, 1e-14);
  EXPECT_EQ(h.plan.clip[1], 7);
  EXPECT_EQ(h.plan.flat_clip, 7);
  // A declared bound is taken as it is.
  config.clip_norm_map = NumberMap{{"layer0", 0.5}};
  EXPECT_EQ(allocate(config, layout, &norms).plan.clip[0], 0.5);
}

TEST(BudgetAllocation, AdaptedBoundsAreTakenAsTheyAreAndTheCountsAreAccounted) {
  DpConfig config = config_of(ClipStrategy::kAdaptive);
  config.effective_batch_size = 100;
  const AdaptiveClipOptions options = adaptive_clip_options(config);
  const AdaptiveClipState state = initial_state(std::vector<double>{4}, options);
  const NormHistory norms = norm_history(state, options);
  const Allocation a = allocate(config, model_of({10, 20}), &norms);
  EXPECT_NEAR(a.plan.clip[0], 4, 1e-14);
  const auto groups = gaussian_groups(a, 1, adaptation(options, a.plan.partition.parts()));
  EXPECT_NEAR(std::pow(effective_noise_multiplier(groups), -2), 1 + 2 / (4 * 100.0), 1e-12);
}

TEST(BudgetAllocation, WhatIsAccountedDoesNotFollowTheNormsThatWereReleased) {
  const ModelLayout layout = model_of({10, 2000, 30});
  std::mt19937_64 random(23);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (const ClipStrategy strategy : {ClipStrategy::kPerLayer, ClipStrategy::kHybrid})
    for (const AllocationMode mode : {AllocationMode::kUniform, AllocationMode::kLayerWise})
      for (const bool scaled : {false, true}) {
        DpConfig config = config_of(strategy, mode);
        if (scaled) config.per_layer_multiplier = NumberMap{{"layer1", 0.7}};
        std::optional<accounting::GaussianGroups> first;
        for (int trial = 0; trial < 50; ++trial) {
          const auto norm = [&] { return std::exp(3 * uniform(random)); };
          const NormHistory norms = NormHistory::from_noised_release({norm(), norm(), norm()});
          const bool reacts =
              scaled && (mode == AllocationMode::kLayerWise || strategy == ClipStrategy::kHybrid);
          if (reacts) {
            EXPECT_THROW(allocate(config, layout, &norms), Error);
            continue;
          }
          const Allocation a = allocate(config, layout, &norms);
          EXPECT_TRUE(a.follows_releases);
          const auto accounted = accounted_groups(a, 1.3);
          if (!first) first = accounted;
          EXPECT_EQ(accounted, *first) << "the same in every bit";
          EXPECT_LE(effective_noise_multiplier(accounted),
                    effective_noise_multiplier(gaussian_groups(a, 1.3)) * (1 + 1e-14));
        }
      }
  // Public norms are fixed in advance: the groups themselves are accounted, scaled or not.
  DpConfig config = config_of(ClipStrategy::kPerLayer, AllocationMode::kLayerWise);
  config.per_layer_multiplier = NumberMap{{"layer1", 0.7}};
  const NormHistory norms = NormHistory::from_public({1, 2, 3});
  const Allocation a = allocate(config, layout, &norms);
  EXPECT_FALSE(a.follows_releases);
  EXPECT_EQ(accounted_groups(a, 1.3), gaussian_groups(a, 1.3));
}

TEST(BudgetAllocation, HybridUsesTheGreedyRuleNotThePlainSum) {
  // Two parts of bound 1 inside a flat bound 1: a record cannot fill both, sigma_g = sigma_eff.
  DpConfig config = config_of(ClipStrategy::kHybrid, AllocationMode::kUniform, {1, 1});
  const Allocation a = allocate(config, model_of({10, 20}));
  EXPECT_NEAR(a.multiplier[0], 1, 1e-12);
  config.clip_norm = 2;  // the flat bound does not bind: the plain sum
  EXPECT_NEAR(allocate(config, model_of({10, 20})).multiplier[0], std::sqrt(2.0), 1e-12);
}

TEST(BudgetAllocation, PartsAreDisjointAndTogetherAllPrivateParameters) {
  const ModelLayout layout =
      testing::bert_base().with_public(std::vector<std::string>{"embeddings", "encoder.0"});
  for (const ClipStrategy strategy : {ClipStrategy::kPerSample, ClipStrategy::kPerLayer,
                                      ClipStrategy::kPerGroup, ClipStrategy::kPerTensor}) {
    const Allocation a = allocate(config_of(strategy), layout);
    std::uint64_t elements = 0;
    for (const std::uint64_t d : a.plan.partition.elements) elements += d;
    EXPECT_EQ(elements, layout.private_parameters());
    for (std::size_t i = 0; i < layout.size(); ++i)
      EXPECT_EQ(a.plan.partition.part_of[i] == Partition::kNone, !layout.tensors()[i].is_private());
  }
}

TEST(BudgetAllocation, OfRealModelsLayerWiseHasLessNoise) {
  EXPECT_EQ(testing::resnet18().parameters(), 11'689'512u);
  EXPECT_EQ(testing::bert_base().parameters(), 109'482'240u);
  EXPECT_EQ(testing::gpt2_small().parameters(), 124'439'808u);
  for (const ModelLayout& layout :
       {testing::resnet18(), testing::bert_base(), testing::gpt2_small()}) {
    const auto energy = [&](AllocationMode mode) {
      return noise_energy(allocate(config_of(ClipStrategy::kPerLayer, mode), layout), 1);
    };
    // Equal bounds: (sum sqrt(d))^2 / (G sum d), by a sum of its own.
    double roots = 0, all = 0;
    const Partition layers = partition(layout, Cut::kLayer);
    for (const std::uint64_t d : layers.elements) {
      roots += std::sqrt(static_cast<double>(d));
      all += static_cast<double>(d);
    }
    const double ratio = energy(AllocationMode::kLayerWise) / energy(AllocationMode::kUniform);
    EXPECT_NEAR(ratio, roots * roots / (static_cast<double>(layers.parts()) * all), 1e-10);
    EXPECT_LT(ratio, 0.65);
  }
}

TEST(BudgetAllocation, RefusesWhatCannotBeAllocated) {
  const std::vector<std::string> all = {"layer0"};
  EXPECT_EQ(refusal(config_of(ClipStrategy::kPerLayer), model_of({3}).with_public(all)),
            "no tensor receives private gradients, so there is no budget to allocate");
  EXPECT_EQ(refusal(config_of(ClipStrategy::kPerLayer, AllocationMode::kUniform, {1e-200, 1}),
                    model_of({3, 3})),
            "the clip bound of layer0 is 1e-200; it must be in [1e-100, 1e100]");
  const Allocation a = allocate(config_of(ClipStrategy::kPerLayer), model_of({3, 0}));
  const auto code = [&](double sigma) { return code_of([&] { gaussian_groups(a, sigma); }); };
  EXPECT_EQ(code(std::nan("")), ErrorCode::kNanInSigma);
  EXPECT_EQ(code(HUGE_VAL), ErrorCode::kNanInSigma);
  EXPECT_EQ(code(0), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code(-1), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code(1e9), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code(1), std::nullopt);
}

}  // namespace
}  // namespace discreet::mechanism
