#include "discreet/mechanism/clip/clip_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/clip_groups_impl.h"
#include "discreet/mechanism/clip/clip_ranges_impl.h"
#include "discreet/mechanism/clip/clip_team_impl.h"
#include "discreet/mechanism/clip/reach_impl.h"
#include "discreet/numerics/rounding.h"
#include "discreet/numerics/strict_arithmetic.h"

namespace discreet::mechanism {
namespace {

constexpr const char* kOperator = "ClipPerSample_v1";

}  // namespace

template <class Real>
void check_gradients(const ModelLayout& layout, const PerSampleGradients<Real>& gradients) {
  if (gradients.tensors.size() != layout.size())
    invalid_gradient(kOperator,
                     "found gradients of {} tensors for a layout of {}; pass one span per tensor, "
                     "empty if it is not private",
                     gradients.tensors.size(), layout.size());
  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (!layout.tensors()[i].is_private()) continue;
    const std::uint64_t elements = layout.elements(i);
    const std::uint64_t given = gradients.tensors[i].size();
    const bool fits =
        elements == 0 ? given == 0 : given % elements == 0 && given / elements == gradients.records;
    if (!fits)
      invalid_gradient(kOperator, "tensor {} has {} values; expected {} records of {} elements",
                       layout.tensors()[i].name, given, gradients.records, elements);
  }
}

template void check_gradients(const ModelLayout&, const PerSampleGradients<float>&);
template void check_gradients(const ModelLayout&, const PerSampleGradients<double>&);

void check_partition(const ModelLayout& layout, const Partition& partition) {
  if (partition.part_of.size() != layout.size())
    invalid_config(kOperator,
                   "the partition covers {} tensors, but the layout has {}; partition this layout",
                   partition.part_of.size(), layout.size());
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const std::uint32_t part = partition.part_of[i];
    if (layout.tensors()[i].is_private() ? part >= partition.parts() : part != Partition::kNone)
      invalid_config(
          kOperator,
          "tensor {} is {}, but the partition assigns it to {} part; partition this layout",
          layout.tensors()[i].name, layout.tensors()[i].is_private() ? "private" : "not private",
          part < partition.parts() ? "a" : "no");
  }
}

void check_sum(const char* op, const ModelLayout& layout, const GradientSum& sum) {
  if (!sum.is_of(layout))
    invalid_input(op, "the sum belongs to another layout; create it with GradientSum(layout)");
}

namespace {

void check_options(const ClipOptions& options) {
  if (options.max_microbatch == 0)
    invalid_config(kOperator, "max_microbatch is 0; it must be at least 1");
  numerics::require_round_to_nearest();
}

template <class Real>
[[noreturn]] void abort_clip(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                             std::size_t record) {
  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (!layout.tensors()[i].is_private()) continue;
    const auto row = gradients.tensors[i].subspan(record * layout.elements(i), layout.elements(i));
    if (!std::all_of(row.begin(), row.end(), [](Real x) { return std::isfinite(x); }))
      invalid_gradient(kOperator,
                       "the gradient of tensor {} is not finite in record {}; nothing was added. "
                       "Set nonfinite: zero to leave such records out",
                       layout.tensors()[i].name, record);
  }
  invalid_gradient(kOperator, "the gradient of record {} changed while it was being read", record);
}

RecordNorms empty_norms(std::size_t records, std::size_t parts) {
  RecordNorms norms;
  norms.records = records;
  norms.parts = parts;
  norms.norms.resize(records * parts);
  norms.scales.resize(records * parts);
  norms.zeroed.resize(records);
  return norms;
}

template <class Real>
RecordNorms norms_of(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                     std::size_t parts, std::vector<Group> groups, const ClipOptions& options,
                     const Reached* reached = nullptr) {
  RecordNorms norms = empty_norms(gradients.records, parts);
  norms.scales.clear();
  Team<Real> team(layout, gradients, options, std::move(groups), nullptr, reached);
  team.run([&](std::size_t share) { team.measure(share, norms); });
  for (std::size_t i = 0; i < norms.records; ++i) {
    const auto own = std::span(norms.norms).subspan(i * norms.parts, norms.parts);
    if (std::none_of(own.begin(), own.end(), [](double norm) { return std::isnan(norm); }))
      continue;
    if (options.nonfinite == Nonfinite::kAbort) abort_clip(layout, gradients, i);
    std::fill(own.begin(), own.end(), 0.0);
    norms.zeroed[i] = 1;
  }
  return norms;
}

template <class Real>
RecordNorms norms_of(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                     const Partition& partition, const ClipOptions& options) {
  return norms_of(layout, gradients, partition.parts(),
                  group_together(layout, partition, gradients.records), options);
}

template <class Real>
void sum_of(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
            const Partition& partition, const RecordNorms& decided, const ClipOptions& options,
            GradientSum& sum, const Reached* reached = nullptr) {
  Team<Real> team(layout, gradients, options, group_together(layout, partition, gradients.records),
                  &sum, reached);
  team.run([&](std::size_t share) { team.accumulate(share, decided); });
}

template <class Real>
RecordNorms clip(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                 const ClipPlan& plan, const ClipOptions& options, GradientSum& sum) {
  check_options(options);
  check_partition(layout, plan.partition);
  check_gradients(layout, gradients);
  check_sum(kOperator, layout, sum);
  RecordNorms norms = empty_norms(0, plan.partition.parts());
  decide_scales(plan, norms);  // rejects invalid bounds, even for an empty batch
  if (gradients.records == 0) return norms;

  if (!plan.flat_clip) {
    norms = empty_norms(gradients.records, plan.partition.parts());
    Team<Real> team(
        layout, gradients, options,
        group_parts(layout, plan.partition, gradients.records, sizeof(Real), options.threads),
        &sum);
    const auto decide = [&](const Group& group, std::size_t first, std::size_t end) {
      for (std::size_t i = first; i < end; ++i)
        for (std::uint32_t part = group.first_part; part < group.end_part; ++part)
          norms.scales[i * norms.parts + part] = clip_scale(norms.norm(i, part), plan.clip[part]);
    };
    if (team.measure_and_accumulate(decide, norms)) return norms;
  }
  norms = norms_of(layout, gradients, plan.partition, options);
  decide_scales(plan, norms);
  sum_of(layout, gradients, plan.partition, norms, options, sum);
  return norms;
}

template <class Real>
RecordNorms checked_norms(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                          const Partition& partition, const ClipOptions& options) {
  check_options(options);
  check_partition(layout, partition);
  check_gradients(layout, gradients);
  return norms_of(layout, gradients, partition, options);
}

template <class Real>
void checked_add(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                 const Partition& partition, const RecordNorms& decided, const ClipOptions& options,
                 GradientSum& sum) {
  check_options(options);
  check_partition(layout, partition);
  check_gradients(layout, gradients);
  check_sum(kOperator, layout, sum);
  if (decided.records != gradients.records || decided.parts != partition.parts() ||
      decided.scales.size() != decided.records * decided.parts)
    invalid_input(kOperator,
                  "found scales of {} records and {} parts for gradients of {} records and {} "
                  "parts; call decide_scales first",
                  decided.records, decided.parts, gradients.records, partition.parts());
  sum_of(layout, gradients, partition, decided, options, sum);
}

}  // namespace

template <class Real>
RecordNorms reached_norms(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                          const Partition& partition, const Reach& reach,
                          std::span<const std::uint32_t> classes, const ClipOptions& options) {
  check_options(options);
  check_gradients(layout, gradients);
  const Reached reached{reach, classes};
  return norms_of(layout, gradients, partition.parts(),
                  group_together(layout, partition, gradients.records), options, &reached);
}

template <class Real>
RecordNorms clip_reached(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                         const Partition& partition, const Reach& reach,
                         std::span<const std::uint32_t> classes, const ClipOptions& options,
                         const DecideScales& decide, GradientSum& sum) {
  check_options(options);
  check_gradients(layout, gradients);
  check_sum(kOperator, layout, sum);
  RecordNorms norms = empty_norms(gradients.records, partition.parts());
  if (gradients.records == 0) return norms;
  const Reached reached{reach, classes};
  Team<Real> team(
      layout, gradients, options,
      group_together(layout, partition, gradients.records, sizeof(Real), options.threads), &sum,
      &reached);
  const auto decide_window = [&](const Group&, std::size_t first, std::size_t end) {
    decide(first, end, norms);
  };
  if (team.measure_and_accumulate(decide_window, norms)) return norms;
  norms = reached_norms(layout, gradients, partition, reach, classes, options);
  norms.scales.resize(norms.norms.size());
  decide(0, norms.records, norms);
  sum_of(layout, gradients, partition, norms, options, sum, &reached);
  return norms;
}

template RecordNorms reached_norms(const ModelLayout&, const PerSampleGradients<float>&,
                                   const Partition&, const Reach&, std::span<const std::uint32_t>,
                                   const ClipOptions&);
template RecordNorms reached_norms(const ModelLayout&, const PerSampleGradients<double>&,
                                   const Partition&, const Reach&, std::span<const std::uint32_t>,
                                   const ClipOptions&);
template RecordNorms clip_reached(const ModelLayout&, const PerSampleGradients<float>&,
                                  const Partition&, const Reach&, std::span<const std::uint32_t>,
                                  const ClipOptions&, const DecideScales&, GradientSum&);
template RecordNorms clip_reached(const ModelLayout&, const PerSampleGradients<double>&,
                                  const Partition&, const Reach&, std::span<const std::uint32_t>,
                                  const ClipOptions&, const DecideScales&, GradientSum&);

RecordNorms clip_per_sample(const ModelLayout& layout, const PerSampleGradients<float>& gradients,
                            const ClipPlan& plan, const ClipOptions& options, GradientSum& sum) {
  return clip(layout, gradients, plan, options, sum);
}
RecordNorms clip_per_sample(const ModelLayout& layout, const PerSampleGradients<double>& gradients,
                            const ClipPlan& plan, const ClipOptions& options, GradientSum& sum) {
  return clip(layout, gradients, plan, options, sum);
}
RecordNorms per_sample_norms(const ModelLayout& layout, const PerSampleGradients<float>& gradients,
                             const Partition& partition, const ClipOptions& options) {
  return checked_norms(layout, gradients, partition, options);
}
RecordNorms per_sample_norms(const ModelLayout& layout, const PerSampleGradients<double>& gradients,
                             const Partition& partition, const ClipOptions& options) {
  return checked_norms(layout, gradients, partition, options);
}
void add_scaled(const ModelLayout& layout, const PerSampleGradients<float>& gradients,
                const Partition& partition, const RecordNorms& decided, const ClipOptions& options,
                GradientSum& sum) {
  checked_add(layout, gradients, partition, decided, options, sum);
}
void add_scaled(const ModelLayout& layout, const PerSampleGradients<double>& gradients,
                const Partition& partition, const RecordNorms& decided, const ClipOptions& options,
                GradientSum& sum) {
  checked_add(layout, gradients, partition, decided, options, sum);
}

double summation_charge(std::uint64_t terms) noexcept {
  if (terms >= std::uint64_t{1} << 40) return std::numeric_limits<double>::infinity();
  const double n = static_cast<double>(terms);
  // 2 n gamma_n, gamma_n = n u / (1 - n u); the denominator is exact.
  return terms == 0 ? 0 : numerics::next_up(numerics::next_up(n * n) * 0x1p-52 / (1 - n * 0x1p-53));
}

}  // namespace discreet::mechanism
