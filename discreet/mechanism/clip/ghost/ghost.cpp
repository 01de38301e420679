#include "discreet/mechanism/clip/ghost/ghost.h"

#include <fmt/core.h>

#include <array>
#include <cmath>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/finite_impl.h"
#include "discreet/mechanism/clip/ghost/ghost_impl.h"
#include "discreet/numerics/rounding.h"

namespace discreet::mechanism {
namespace {

constexpr std::size_t kMostBinary32Records = 256;

void check_plan(const ModelLayout& layout, const ClipPlan& plan, const ClipOptions& options,
                const char* operator_name) {
  const std::vector<std::uint32_t>& part_of = plan.partition.part_of;
  if (part_of.size() != layout.size())
    invalid_config(operator_name, "the plan partitions {} tensors, but the layout has {}",
                   part_of.size(), layout.size());
  for (std::size_t i = 0; i < layout.size(); ++i)
    if (layout.tensors()[i].is_private() ? part_of[i] >= plan.partition.parts()
                                         : part_of[i] != Partition::kNone)
      invalid_config(operator_name,
                     "the plan's partition does not match this layout: tensor {} is {}private",
                     layout.tensors()[i].name, layout.tensors()[i].is_private() ? "" : "not ");
  if (options.binary32_records > kMostBinary32Records)
    invalid_config(operator_name, "binary32_records is {}; it must be at most {}",
                   options.binary32_records, kMostBinary32Records);
  RecordNorms none;
  none.parts = plan.partition.parts();
  decide_scales(plan, none);  // rejects invalid bounds
}

// The values that a pass has for a record: its two arrays, each divided into `records` equal lines.
template <class Real>
std::array<std::span<const Real>, 2> values_of(const LayerPass<Real>& pass) {
  struct Values {
    using Pair = std::array<std::span<const Real>, 2>;
    Pair operator()(const DensePass<Real>& p) { return {p.activations, p.output_gradients}; }
    Pair operator()(const ConvolutionPass<Real>& p) { return {p.inputs, p.output_gradients}; }
    Pair operator()(const EmbeddingPass<Real>& p) { return {Pair{}[0], p.output_gradients}; }
    Pair operator()(const NormalisationPass<Real>& p) {
      return {p.scale ? p.normalised : Pair{}[0], p.output_gradients};
    }
  };
  return std::visit(Values{}, pass);
}

}  // namespace

template <class Real>
std::array<std::optional<std::size_t>, 2> tensors_of(const LayerPass<Real>& pass) {
  struct Tensors {
    using Pair = std::array<std::optional<std::size_t>, 2>;
    Pair operator()(const DensePass<Real>& p) { return {p.weight, p.bias}; }
    Pair operator()(const ConvolutionPass<Real>& p) { return {p.weight, p.bias}; }
    Pair operator()(const EmbeddingPass<Real>& p) { return {p.weight, std::nullopt}; }
    Pair operator()(const NormalisationPass<Real>& p) { return {p.scale, p.shift}; }
  };
  return std::visit(Tensors{}, pass);
}

template <class Real>
void Ghost<Real>::begin(const GradientSum& sum) {
  check_pass(layout, pass, operator_name);
  if (sum.tensors() != layout.size() || sum.values().size() != layout.private_parameters())
    invalid_input(operator_name, "the sum has {} values of {} tensors; the layout has {} of {}",
                  sum.values().size(), sum.tensors(), layout.private_parameters(), layout.size());
  check_plan(layout, plan, options, operator_name);
  norms.records = pass.records;
  norms.parts = plan.partition.parts();
  norms.norms.assign(norms.records * norms.parts, 0.0);
  norms.scales.assign(norms.records * norms.parts, 0.0);
  norms.zeroed.assign(norms.records, 0);
  wide.assign(pass.layers.size() * norms.records, 0);
}

template <class Real>
bool Ghost<Real>::finite(std::size_t l, std::size_t record) const {
  for (const std::span<const Real>& values : values_of(pass.layers[l])) {
    const std::size_t line = values.size() / norms.records;
    if (!all_finite(values.subspan(record * line, line))) return false;
  }
  return true;
}

template <class Real>
void Ghost<Real>::refuse_nonfinite(std::size_t l) const {
  if (options.nonfinite == Nonfinite::kZero) return;
  const auto tensors = tensors_of(pass.layers[l]);
  for (std::size_t i = 0; i < norms.records; ++i)
    if (norms.zeroed[i] != 0)
      invalid_gradient(operator_name,
                       "record {} has a value that is not finite in the layer of tensor {}; "
                       "nothing was added. Set nonfinite: zero to leave such records out",
                       i, layout.tensors()[*tensors[tensors[0] ? 0 : 1]].name);
}

template <class Real>
void Ghost<Real>::find_nonfinite() {
  for (std::size_t l = 0; l < pass.layers.size(); ++l) {
    if (!has_private(l)) continue;
    const auto values = values_of(pass.layers[l]);
    in_shares(norms.records, static_cast<double>(values[0].size() + values[1].size()),
              options.threads, [&](std::size_t begin, std::size_t end) {
                for (std::size_t i = begin; i < end; ++i)
                  if (!finite(l, i)) norms.zeroed[i] = 1;
              });
    refuse_nonfinite(l);
  }
}

template <class Real>
bool Ghost<Real>::has_private(std::size_t l) const {
  for (const std::optional<std::size_t>& i : tensors_of(pass.layers[l]))
    if (i && layout.tensors()[*i].is_private()) return true;
  return false;
}

// Whether the record adds to the tensor's gradient.
template <class Real>
bool Ghost<Real>::reaches(std::size_t record, const std::optional<std::size_t>& tensor) const {
  return tensor && layout.tensors()[*tensor].is_private() &&
         (permits == nullptr || (*permits)(record, plan.partition.part_of[*tensor]));
}

template <class Real>
void Ghost<Real>::measure(std::size_t l) {
  if (!has_private(l)) return;
  const auto values = values_of(pass.layers[l]);
  const auto tensors = tensors_of(pass.layers[l]);
  const double cost = 4.0 * static_cast<double>(values[0].size() + values[1].size());
  in_shares(norms.records, cost, options.threads, [&](std::size_t begin, std::size_t end) {
    NormScratch<Real> scratch;
    for (std::size_t i = begin; i < end; ++i) {
      if (norms.zeroed[i] != 0 || !(reaches(i, tensors[0]) || reaches(i, tensors[1]))) continue;
      bool is_wide = true;
      const std::array<Bound, 2> bounds =
          record_bounds(layout, pass.layers[l], i, scratch, is_wide);
      wide[l * norms.records + i] = is_wide ? 1 : 0;
      // An overflow of finite values is a norm of +infinity; other infinities have no norm.
      if (!std::isfinite(bounds[0].norm + bounds[1].norm) && !finite(l, i)) {
        norms.zeroed[i] = 1;
        std::fill_n(norms.norms.begin() + static_cast<std::ptrdiff_t>(i * norms.parts), norms.parts,
                    0.0);
        continue;
      }
      for (std::size_t k = 0; k < 2; ++k) {
        if (!reaches(i, tensors[k])) continue;
        double& norm = norms.norms[i * norms.parts + plan.partition.part_of[*tensors[k]]];
        norm = hypotenuse_upper(norm, bounds[k].norm);
      }
    }
  });
  refuse_nonfinite(l);
}

template <class Real>
void Ghost<Real>::add(std::size_t l, Target& target) const {
  add_scaled(layout, pass.layers[l], norms,
             std::span(wide).subspan(l * norms.records, norms.records), plan, options, target);
}

namespace {

template <class Real>
RecordNorms clip(const ModelLayout& layout, const BackwardPass<Real>& pass, const ClipPlan& plan,
                 const ClipOptions& options, GradientSum& sum) {
  Ghost<Real> ghost{"GhostClipPerSample_v1", layout, pass, plan, options};
  ghost.begin(sum);
  for (std::size_t l = 0; l < pass.layers.size(); ++l) ghost.measure(l);
  decide_scales(plan, ghost.norms);
  Target target(sum);
  for (std::size_t l = 0; l < pass.layers.size(); ++l) ghost.add(l, target);
  target.finish();
  return std::move(ghost.norms);
}

}  // namespace

RecordNorms ghost_clip(const ModelLayout& layout, const BackwardPass<float>& pass,
                       const ClipPlan& plan, const ClipOptions& options, GradientSum& sum) {
  return clip(layout, pass, plan, options, sum);
}
RecordNorms ghost_clip(const ModelLayout& layout, const BackwardPass<double>& pass,
                       const ClipPlan& plan, const ClipOptions& options, GradientSum& sum) {
  return clip(layout, pass, plan, options, sum);
}

double sensitivity_factor(std::size_t records, std::size_t positions, const ClipOptions& options,
                          Slots slots) {
  constexpr std::size_t kMost = std::size_t{1} << 30;
  if (records >= kMost || positions >= kMost || options.binary32_records > kMostBinary32Records)
    invalid_input("sensitivity_factor",
                  "found {} records, {} positions and {} binary32_records; they must be below "
                  "2^30, below 2^30 and at most {}",
                  records, positions, options.binary32_records, kMostBinary32Records);
  const auto wide = [](std::size_t n) { return static_cast<double>(n); };
  const double run = wide(options.binary32_records);
  const double changed = slots == Slots::kFixed ? std::min(run, wide(records)) : wide(records);
  // 1.001 is above every 1 / (1 - m u) and the rounding of this function.
  const double binary32 = run == 0 ? 0 : changed * (run + 5) * 0x1p-24;
  const double additions = 1.01 * wide(records) * wide(positions) + 16;
  const double binary64 = wide(records) * 4096 * additions * 0x1p-53;
  const double factor = numerics::next_up(1 + 2 * 1.001 * (binary32 + binary64));
  if (factor > 2)
    invalid_input("sensitivity_factor",
                  "the rounding error of a sum of {} records with {} positions may reach the clip "
                  "bound; set binary32_records below {} or to 0, or use smaller steps",
                  records, positions, options.binary32_records);
  return factor;
}

template struct Ghost<float>;
template struct Ghost<double>;
template std::array<std::optional<std::size_t>, 2> tensors_of(const LayerPass<float>&);
template std::array<std::optional<std::size_t>, 2> tensors_of(const LayerPass<double>&);

}  // namespace discreet::mechanism
