#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "discreet/admission/resolver.h"
#include "discreet/base/error.h"
#include "discreet/base/text/nearest.h"

namespace discreet::admission {
namespace {

constexpr const char* kOperator = "resolve";

bool belongs_to(const std::string& name, const std::string& module) {
  return name == module ||
         (name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.');
}

std::string hint(const std::string& name, const std::vector<std::string>& known) {
  const auto meant = nearest(name, known);
  return meant ? fmt::format("; did you mean {}?", *meant) : std::string();
}

// Which layers of the stack a band permits.
std::set<std::string> layers_of(const LayerBand& band, const std::vector<std::string>& stack) {
  if (band.last >= stack.size())
    invalid_config(kOperator,
                   "the profile permits layer {}, but the model has {} layers, numbered from 0",
                   band.last, stack.size());
  return {stack.begin() + band.first, stack.begin() + band.last + 1};
}

std::set<std::string> layers_of(const DepthBand& band, const std::vector<std::string>& stack) {
  const std::uint64_t count = stack.size();
  std::set<std::string> out;
  for (std::uint64_t i = 0; i < count; ++i)
    if (i * Scaled::kUnit >= band.from.units * count &&
        (i + 1) * Scaled::kUnit <= band.to.units * count)
      out.insert(stack[i]);
  if (out.empty())
    invalid_config(
        kOperator,
        "no layer of {} lies entirely between {} and {} of the depth; widen the band or use layers",
        count, band.from.to_text(), band.to.to_text());
  return out;
}

std::set<std::string> layers_of(const ModuleSet& set, const std::vector<std::string>& stack) {
  std::set<std::string> out;
  for (const std::string& module : set.modules) {
    bool found = false;
    for (const std::string& layer : stack) {
      if (!belongs_to(layer, module)) continue;
      out.insert(layer);
      found = true;
    }
    if (!found)
      invalid_config(kOperator, "the model has no layer in module {}{}", module,
                     hint(module, stack));
  }
  return out;
}

bool is_permitted(const Tensor& tensor, const std::set<std::string>& layers) {
  return tensor.is_private() && layers.contains(tensor.layer);
}

// The slices of one tensor that a mask over `whole` slices permits; none: nothing of the tensor.
std::optional<RouteMask> mask_of(const Tensor& tensor, const Slices& slices, std::uint32_t whole,
                                 const std::vector<std::uint32_t>& mask) {
  if (whole % slices.count != 0)
    invalid_config(kOperator,
                   "tensor {} has {} slices, which do not divide the {} of the widest tensor",
                   tensor.name, slices.count, whole);
  const std::uint32_t served = whole / slices.count;
  RouteMask out{slices, {}};
  for (std::uint32_t j = 0; j < slices.count; ++j) {
    bool all = true;
    for (std::uint32_t h = j * served; h < (j + 1) * served; ++h)
      all = all && std::binary_search(mask.begin(), mask.end(), h);
    if (all) out.permitted.push_back(j);
  }
  if (out.permitted.empty()) return std::nullopt;
  return out;
}

std::uint32_t widest(const std::vector<RouteTensor>& tensors, const ModelLayout& layout,
                     std::optional<Slices> Tensor::*slices, const std::vector<std::uint32_t>& mask,
                     const char* what) {
  std::uint32_t most = 0;
  for (const RouteTensor& t : tensors)
    if (const auto& s = layout.tensors()[t.tensor].*slices) most = std::max(most, s->count);
  if (!mask.empty() && mask.back() >= most)
    invalid_config(kOperator,
                   "the profile permits {} {}, but the permitted layers have {}, numbered from 0",
                   what, mask.back(), most);
  return most;
}

void apply_masks(std::vector<RouteTensor>& tensors, const DepthProfile& profile,
                 const ModelLayout& layout) {
  if (profile.heads.empty() && profile.experts.empty()) return;
  const std::uint32_t heads = widest(tensors, layout, &Tensor::heads, profile.heads, "head");
  const std::uint32_t experts =
      widest(tensors, layout, &Tensor::experts, profile.experts, "expert");
  std::erase_if(tensors, [&](RouteTensor& t) {
    const Tensor& tensor = layout.tensors()[t.tensor];
    bool sliced = false;
    const auto apply = [&](const std::optional<Slices>& slices, std::uint32_t whole,
                           const std::vector<std::uint32_t>& mask) {
      if (mask.empty() || !slices) return true;
      sliced = true;
      auto permitted = mask_of(tensor, *slices, whole, mask);
      if (!permitted) return false;
      t.masks.push_back(std::move(*permitted));
      return true;
    };
    const bool kept = apply(tensor.heads, heads, profile.heads) &&
                      apply(tensor.experts, experts, profile.experts);
    return !kept || !sliced;
  });
}

}  // namespace

std::vector<std::string> layer_stack(const ModelLayout& layout) {
  std::vector<std::string> stack;
  std::set<std::string> seen;
  for (const Tensor& tensor : layout.tensors())
    if (tensor.adapter.empty() && seen.insert(tensor.layer).second) stack.push_back(tensor.layer);
  return stack;
}

std::vector<RouteTensor> permitted_tensors(const DepthProfile& profile, const std::string& adapter,
                                           const ModelLayout& layout) {
  std::vector<RouteTensor> out;
  const auto take = [&](auto permits) {
    for (std::size_t i = 0; i < layout.size(); ++i)
      if (permits(layout.tensors()[i])) out.push_back({i, {}});
  };
  if (const auto* bound = std::get_if<AdapterBound>(&profile.where)) {
    const std::string& name = bound->adapter.empty() ? adapter : bound->adapter;
    take([&](const Tensor& t) { return t.is_private() && !name.empty() && t.adapter == name; });
    if (out.empty()) {
      std::vector<std::string> known;
      for (const Tensor& t : layout.tensors())
        if (!t.adapter.empty()) known.push_back(t.adapter);
      invalid_config(kOperator, "the model does not train the adapter {}{}", name,
                     hint(name, known));
    }
  } else if (std::holds_alternative<WholeModel>(profile.where)) {
    take([](const Tensor& t) { return t.is_private(); });
  } else {
    const std::vector<std::string> stack = layer_stack(layout);
    std::set<std::string> layers;
    if (const auto* band = std::get_if<LayerBand>(&profile.where)) layers = layers_of(*band, stack);
    if (const auto* band = std::get_if<DepthBand>(&profile.where)) layers = layers_of(*band, stack);
    if (const auto* set = std::get_if<ModuleSet>(&profile.where)) layers = layers_of(*set, stack);
    take([&](const Tensor& t) { return is_permitted(t, layers); });
  }
  apply_masks(out, profile, layout);
  if (out.empty())
    invalid_config(kOperator, "the profile, {}, permits no privately trained tensor",
                   describe(profile));
  return out;
}

}  // namespace discreet::admission
