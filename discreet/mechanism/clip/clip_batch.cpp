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

template <class... F>
struct Cases : F... {
  using F::operator()...;
};
template <class... F>
Cases(F...) -> Cases<F...>;

[[noreturn]] void refuse(std::string sentence) {
  throw Error(ErrorCode::kInvalidDpConfig, kOperator, std::move(sentence));
}

void check_grid(double grid, const ClipPlan& plan) {
  int exponent = 0;
  if (!(std::isfinite(grid) && grid > 0)) refuse(fmt::format("noise.discrete is {}", grid));
  if (std::frexp(grid, &exponent) != 0.5)
    refuse(
        fmt::format("noise.discrete is {}; sums are exact only on a grid that is a power of two, "
                    "such as {}",
                    grid, std::ldexp(1.0, exponent)));
  for (std::size_t g = 0; g < plan.clip.size(); ++g)
    if (plan.clip[g] / grid > 0x1p40)
      refuse(
          fmt::format("the clip bound {} of {} is more than 2^40 steps of noise.discrete {}; take "
                      "a coarser grid",
                      plan.clip[g], plan.partition.names[g], grid));
}

template <class Real>
RecordNorms to_grid(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                    const ClipPlan& plan, double grid, const ClipOptions& options,
                    GradientSum& sum) {
  RecordNorms norms = per_sample_norms(layout, gradients, plan.partition, options);
  decide_scales(plan, norms);
  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (!layout.tensors()[i].is_private()) continue;
    const std::size_t part = plan.partition.part_of[i];
    const std::size_t n = layout.elements(i);
    const auto out = sum.tensor(i);
    for (std::size_t record = 0; record < gradients.records; ++record) {
      const double scale = norms.scale(record, part);
      if (scale == 0) continue;
      const auto row = gradients.tensors[i].subspan(record * n, n);
      for (std::size_t k = 0; k < n; ++k)
        out[k] += std::trunc(scale * static_cast<double>(row[k]) / grid);
    }
  }
  return norms;
}

template <class Real>
RecordNorms in_l1(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                  const ClipPlan& plan, const ClipOptions& options, GradientSum& sum) {
  numerics::require_round_to_nearest();
  if (!sum.is_of(layout))
    throw Error(ErrorCode::kInvalidInput, kOperator,
                "the sum belongs to another layout; make one with GradientSum(layout)");
  std::vector<CoordinateRange> ranges;
  for (std::size_t i = 0; i < layout.size(); ++i)
    if (layout.tensors()[i].is_private())
      ranges.push_back({i, 0, static_cast<std::size_t>(layout.elements(i)), 0});
  const std::vector<std::uint32_t> classes(gradients.records, 0);
  constexpr std::uint8_t kEverything = 1;
  RecordNorms norms =
      l1_norms(layout, gradients, ranges, Permits{classes, {&kEverything, 1}, 1}, options);
  decide_scales(plan, norms);
  add_ranges(layout, gradients, ranges, norms, options.threads, sum);
  return norms;
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

RecordNorms clip(const ModelLayout& layout, const Microbatch& microbatch, ClipStrategy strategy,
                 bool fused, const ClipPlan& plan, const ClipOptions& options, GradientSum& sum) {
  const auto explicit_rows = [&](const auto& gradients) {
    if (strategy == ClipStrategy::kGhost)
      refuse(
          "clipping.strategy is ghost, which takes backward passes, not per-sample gradients; "
          "choose per_sample for these");
    return clip_per_sample(layout, gradients, plan, options, sum);
  };
  const auto passes = [&](const auto& pass) {
    return fused && is_fusible(layout, plan) ? fused_clip(layout, pass, plan, options, sum)
                                             : ghost_clip(layout, pass, plan, options, sum);
  };
  return std::visit(Cases{[&](const PerSampleGradients<float>& g) { return explicit_rows(g); },
                          [&](const PerSampleGradients<double>& g) { return explicit_rows(g); },
                          [&](const BackwardPass<float>& p) { return passes(p); },
                          [&](const BackwardPass<double>& p) { return passes(p); }},
                    microbatch);
}

RecordNorms clip_to_grid(const ModelLayout& layout, const Microbatch& microbatch,
                         const ClipPlan& plan, double grid, const ClipOptions& options,
                         GradientSum& sum) {
  check_grid(grid, plan);
  const auto no_rows = []() -> RecordNorms {
    refuse(
        "discrete noise rounds each record's gradient, and backward passes have none; give "
        "per-sample gradients or take the gaussian family");
  };
  return std::visit(Cases{[&](const PerSampleGradients<float>& g) {
                            return to_grid(layout, g, plan, grid, options, sum);
                          },
                          [&](const PerSampleGradients<double>& g) {
                            return to_grid(layout, g, plan, grid, options, sum);
                          },
                          [&](const BackwardPass<float>&) { return no_rows(); },
                          [&](const BackwardPass<double>&) { return no_rows(); }},
                    microbatch);
}

RecordNorms clip_in_l1(const ModelLayout& layout, const Microbatch& microbatch,
                       const ClipPlan& plan, const ClipOptions& options, GradientSum& sum) {
  if (plan.partition.parts() != 1 || plan.flat_clip)
    refuse(
        fmt::format("clipping in L1 norm has one bound, and the plan has {}; take the strategy "
                    "per_sample",
                    plan.partition.parts() + (plan.flat_clip ? 1 : 0)));
  const auto rows = [&](const auto& form) -> RecordNorms {
    if constexpr (requires { form.tensors; })
      return in_l1(layout, form, plan, options, sum);
    else
      refuse(
          "laplace noise needs the L1 norm of each record's gradient, and backward passes do not "
          "tell it; give per-sample gradients or take the gaussian family");
  };
  return std::visit(rows, microbatch);
}

}  // namespace discreet::mechanism
