// Noise energy of layer-wise against uniform allocation at equal sigma_eff, on three real layouts:
// a table of sum_g d_g sigma_g^2 C_g^2 (layer_wise) / the same (uniform), its root, the ratio of
// the noise norms, and the energy relative to flat clipping to the same norm of a whole record.
// Bounds are equal shares of the clip norm, or in proportion to sqrt(d_g), as where all coordinates
// of a gradient are alike: layer-wise noise is then that of flat clipping.
#include <fmt/core.h>

#include <cmath>
#include <string_view>
#include <utility>

#include "discreet/layout/layouts_testing.h"
#include "discreet/mechanism/noise/budget_allocation.h"

namespace {

using namespace discreet::mechanism;

double energy(const ModelLayout& layout, ClipStrategy strategy, AllocationMode mode, bool by_size) {
  DpConfig config;
  config.clip_strategy = strategy;
  config.privacy_allocation = mode;
  std::vector<double> norms;
  for (const std::uint64_t d : partition(layout, cut_of(strategy)).elements)
    norms.push_back(by_size ? std::sqrt(static_cast<double>(d)) : 1);
  const NormHistory history = NormHistory::from_public(norms);
  return noise_energy(
      allocate_budget(config, layout, analyze_sensitivity(config, layout, &history)), 1);
}

void row(std::string_view name, const ModelLayout& layout, ClipStrategy strategy, bool by_size) {
  const double layer_wise = energy(layout, strategy, AllocationMode::kLayerWise, by_size);
  const double uniform = energy(layout, strategy, AllocationMode::kUniform, by_size);
  const double flat = energy(layout, ClipStrategy::kPerSample, AllocationMode::kUniform, false);
  fmt::print("| {} | {} | {} | {} | {:.3f} | {:.3f} | {:.3f} |\n", name,
             strategy == ClipStrategy::kPerLayer ? "layer" : "tensor",
             partition(layout, cut_of(strategy)).parts(), by_size ? "∝ √d" : "equal",
             layer_wise / uniform, std::sqrt(layer_wise / uniform), layer_wise / flat);
}

}  // namespace

int main() {
  fmt::print(
      "| model | part | parts | bounds | energy, layer-wise / uniform | noise norm | energy / flat "
      "|\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  const std::pair<std::string_view, ModelLayout> models[] = {
      {"ResNet-18", testing::resnet18()},
      {"BERT-base", testing::bert_base()},
      {"GPT-2 small", testing::gpt2_small()}};
  for (const auto& [name, layout] : models)
    for (const ClipStrategy strategy : {ClipStrategy::kPerLayer, ClipStrategy::kPerTensor})
      for (const bool by_size : {false, true}) row(name, layout, strategy, by_size);
}
