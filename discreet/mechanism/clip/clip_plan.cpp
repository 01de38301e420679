#include "discreet/mechanism/clip/clip_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "discreet/base/error.h"
#include "discreet/base/text/nearest.h"
#include "discreet/mechanism/clip/clip_statistics.h"

namespace discreet::mechanism {

ClipPlan clip_plan(const ModelLayout& layout, Cut cut,
                   const std::map<std::string, double>& bounds) {
  ClipPlan plan{.partition = partition(layout, cut), .clip = {}, .flat_clip = {}};
  const auto& names = plan.partition.names;
  for (const std::string& name : names) {
    const auto found = bounds.find(name);
    if (found == bounds.end())
      invalid_config("clip_plan", "clip_norm_map has no bound for {}; add one", name);
    plan.clip.push_back(found->second);
  }
  if (bounds.size() == names.size()) return plan;
  for (const auto& [name, bound] : bounds) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const auto meant = nearest(name, names);
    invalid_config("clip_plan", "clip_norm_map: no private part is named {}{}", name,
                   meant ? fmt::format("; did you mean {}?", *meant) : "");
  }
  return plan;
}

ClipPlan clip_plan(const ModelLayout& layout, Cut cut, double bound) {
  ClipPlan plan{.partition = partition(layout, cut), .clip = {}, .flat_clip = {}};
  plan.clip.assign(plan.partition.parts(), bound);
  return plan;
}

PeftPlan plan_peft(const ModelLayout& layout, std::span<const bool> trainable_mask,
                   std::span<const std::string> public_modules, double bound) {
  constexpr const char* kOperator = "PEFTAwareClipHandler_v1";
  std::vector<Tensor> tensors(layout.tensors().begin(), layout.tensors().end());
  if (!trainable_mask.empty() && trainable_mask.size() != tensors.size())
    invalid_config(kOperator, "trainable_mask has {} entries; expected one for each of {} tensors",
                   trainable_mask.size(), tensors.size());
  for (std::size_t i = 0; i < trainable_mask.size(); ++i) tensors[i].trainable = trainable_mask[i];
  const ModelLayout own = ModelLayout(std::move(tensors)).with_public(public_modules);

  PeftStats stats{.parameters = own.parameters(),
                  .trainable_parameters = own.trainable_parameters(),
                  .private_parameters = own.private_parameters()};
  if (stats.private_parameters == 0)
    invalid_config(
        kOperator,
        "none of the {} parameters is trainable and private, so there is nothing to clip",
        stats.parameters);
  for (std::size_t i = 0; i < own.size(); ++i)
    if (own.tensors()[i].is_private() && !own.tensors()[i].adapter.empty())
      stats.adapter_parameters += own.elements(i);
  stats.noise_reduction_factor = peft_noise_reduction_factor(own);
  return {own, clip_plan(own, Cut::kFlat, bound), stats};
}

}  // namespace discreet::mechanism
