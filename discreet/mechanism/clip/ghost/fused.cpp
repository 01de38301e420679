#include "discreet/mechanism/clip/ghost/fused.h"

#include <fmt/core.h>

#include <array>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/ghost/ghost_impl.h"

namespace discreet::mechanism {
namespace {

constexpr const char* kOperator = "FlashEfficientClip_v1";
constexpr std::size_t kNoPass = static_cast<std::size_t>(-1);

// The parts that each pass has to itself.
template <class Real>
std::vector<std::vector<std::size_t>> parts_of(const Ghost<Real>& ghost) {
  if (ghost.plan.flat_clip)
    invalid_config(
        kOperator,
        "a flat bound over all parts cannot be decided within one layer; use ghost_clip");
  std::vector<std::size_t> owner(ghost.norms.parts, kNoPass);
  std::vector<std::vector<std::size_t>> parts(ghost.pass.layers.size());
  for (std::size_t l = 0; l < parts.size(); ++l)
    for (const std::optional<std::size_t>& tensor : tensors_of(ghost.pass.layers[l])) {
      if (!tensor || !ghost.layout.tensors()[*tensor].is_private()) continue;
      const std::size_t part = ghost.plan.partition.part_of[*tensor];
      if (owner[part] == kNoPass) {
        owner[part] = l;
        parts[l].push_back(part);
      } else if (owner[part] != l) {
        invalid_config(kOperator,
                       "part {} has tensors of passes {} and {}, so its norm cannot be decided "
                       "within one layer; use ghost_clip",
                       ghost.plan.partition.names[part], owner[part], l);
      }
    }
  return parts;
}

template <class Real>
RecordNorms clip(const ModelLayout& layout, const BackwardPass<Real>& pass, const ClipPlan& plan,
                 const ClipOptions& options, GradientSum& sum) {
  Ghost<Real> ghost{kOperator, layout, pass, plan, options};
  ghost.begin(sum);
  const auto parts = parts_of(ghost);
  ghost.find_nonfinite();
  RecordNorms& norms = ghost.norms;
  Target target(sum);
  for (std::size_t l = 0; l < pass.layers.size(); ++l) {
    ghost.measure(l);
    for (std::size_t i = 0; i < norms.records; ++i)
      for (const std::size_t part : parts[l])
        if (norms.zeroed[i] == 0)
          norms.scales[i * norms.parts + part] = clip_scale(norms.norm(i, part), plan.clip[part]);
    ghost.add(l, target);
  }
  target.finish();
  return std::move(norms);
}

}  // namespace

RecordNorms fused_clip(const ModelLayout& layout, const BackwardPass<float>& pass,
                       const ClipPlan& plan, const ClipOptions& options, GradientSum& sum) {
  return clip(layout, pass, plan, options, sum);
}
RecordNorms fused_clip(const ModelLayout& layout, const BackwardPass<double>& pass,
                       const ClipPlan& plan, const ClipOptions& options, GradientSum& sum) {
  return clip(layout, pass, plan, options, sum);
}

}  // namespace discreet::mechanism
