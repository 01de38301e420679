#include "discreet/mechanism/clip/clip_batch.h"

#include <fmt/core.h>

#include <cmath>
#include <map>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/clip_l1_impl.h"
#include "discreet/mechanism/clip/clip_rows.h"
#include "discreet/mechanism/clip/ghost/fused.h"
#include "discreet/mechanism/clip/ghost/ghost.h"
#include "discreet/numerics/strict_arithmetic.h"

namespace discreet::mechanism {
namespace {

constexpr const char* kOperator = "Clip_v1";

void check_grid(double grid, const ClipPlan& plan) {
  int exponent = 0;
  if (!(std::isfinite(grid) && grid > 0)) invalid_config(kOperator, "noise.discrete is {}", grid);
  if (std::frexp(grid, &exponent) != 0.5)
    invalid_config(kOperator,
                   "noise.discrete is {}; sums are exact only on a grid that is a power of two, "
                   "such as {}",
                   grid, std::ldexp(1.0, exponent));
  for (std::size_t g = 0; g < plan.clip.size(); ++g)
    if (plan.clip[g] / grid > 0x1p40)
      invalid_config(
          kOperator,
          "the clip bound {} of {} exceeds 2^40 steps of noise.discrete {}; use a coarser grid",
          plan.clip[g], plan.partition.names[g], grid);
}

// Every coordinate of every private tensor, by the parts of the plan: what one class of records
// that reaches everything may reach.
std::vector<CoordinateRange> everything(const ModelLayout& layout, const Partition& partition) {
  std::vector<CoordinateRange> ranges;
  for (std::size_t i = 0; i < layout.size(); ++i)
    if (layout.tensors()[i].is_private())
      ranges.push_back({i, 0, static_cast<std::size_t>(layout.elements(i)), partition.part_of[i]});
  return ranges;
}

template <class Real>
RecordNorms clip_to_grid(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                         const ClipPlan& plan, double grid, const ClipOptions& options,
                         GradientSum& sum) {
  RecordNorms norms = per_sample_norms(layout, gradients, plan.partition, options);
  decide_scales(plan, norms);
  add_on_grid(
      layout, gradients, everything(layout, plan.partition),
      [&](std::size_t i, const CoordinateRange& range) { return norms.scale(i, range.part); }, grid,
      sum);
  return norms;
}

template <class Real>
RecordNorms clip_in_l1(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                       const ClipPlan& plan, const ClipOptions& options, GradientSum& sum) {
  numerics::require_round_to_nearest();
  check_partition(layout, plan.partition);
  check_sum(kOperator, layout, sum);
  const std::vector<CoordinateRange> ranges = everything(layout, plan.partition);
  const std::vector<std::uint32_t> classes(gradients.records, 0);
  constexpr std::uint8_t kEverything = 1;
  RecordNorms norms =
      l1_norms(layout, gradients, ranges, Permits{classes, {&kEverything, 1}, 1}, options);
  decide_scales(plan, norms);
  add_ranges(layout, gradients, ranges, norms, options.threads, sum);
  return norms;
}

template <class Real>
RecordNorms clip_form(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                      const ClipMethod& method, const ClipPlan& plan, const ClipOptions& options,
                      GradientSum& sum) {
  if (method.grid != 0) return clip_to_grid(layout, gradients, plan, method.grid, options, sum);
  if (method.norm == Norm::kL1) return clip_in_l1(layout, gradients, plan, options, sum);
  if (method.strategy == ClipStrategy::kGhost)
    invalid_config(kOperator,
                   "clipping.strategy is ghost, which needs backward passes, not per-sample "
                   "gradients; use per_sample for these");
  return clip_per_sample(layout, gradients, plan, options, sum);
}

template <class Real>
RecordNorms clip_form(const ModelLayout& layout, const BackwardPass<Real>& pass,
                      const ClipMethod& method, const ClipPlan& plan, const ClipOptions& options,
                      GradientSum& sum) {
  return method.fused && is_fusible(layout, plan) ? fused_clip(layout, pass, plan, options, sum)
                                                  : ghost_clip(layout, pass, plan, options, sum);
}

}  // namespace

std::size_t records_of(const Microbatch& microbatch) noexcept {
  return std::visit([](const auto& form) { return form.records; }, microbatch);
}

bool is_fusible(const ModelLayout& layout, const ClipPlan& plan) {
  if (plan.flat_clip) return false;
  std::map<std::uint32_t, std::string_view> layer_of;
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const std::uint32_t part = plan.partition.part_of[i];
    if (part == Partition::kNone) continue;
    const auto [at, fresh] = layer_of.try_emplace(part, layout.tensors()[i].layer);
    if (!fresh && at->second != layout.tensors()[i].layer) return false;
  }
  return true;
}

void check_form(const char* op, const ClipMethod& method, const Microbatch& microbatch) {
  const bool has_rows = std::visit(
      [](const auto& form) {
        return requires { form.tensors; };
      },
      microbatch);
  if (has_rows) return;
  if (method.grid != 0)
    invalid_config(op,
                   "discrete noise rounds each record's gradient, which backward passes do not "
                   "have; use per-sample gradients or the gaussian family");
  if (method.norm == Norm::kL1)
    invalid_config(op,
                   "laplace noise needs the L1 norm of each record's gradient, which backward "
                   "passes do not give; use per-sample gradients or the gaussian family");
}

RecordNorms clip(const ModelLayout& layout, const Microbatch& microbatch, const ClipMethod& method,
                 const ClipPlan& plan, const ClipOptions& options, GradientSum& sum) {
  if (method.grid != 0) check_grid(method.grid, plan);
  if (method.norm == Norm::kL1 && (plan.partition.parts() != 1 || plan.flat_clip))
    invalid_config(kOperator,
                   "clipping in L1 norm needs exactly one bound, but the plan has {}; use the "
                   "strategy per_sample",
                   plan.partition.parts() + (plan.flat_clip ? 1 : 0));
  check_form(kOperator, method, microbatch);
  return std::visit(
      [&](const auto& form) { return clip_form(layout, form, method, plan, options, sum); },
      microbatch);
}

}  // namespace discreet::mechanism
