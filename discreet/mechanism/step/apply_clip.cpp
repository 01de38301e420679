// Steps 5 to 7 of Apply_v3: what comes into a step, clipped here or elsewhere.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "discreet/config/config_table.h"
#include "discreet/mechanism/step/apply_impl.h"

namespace discreet::mechanism {
namespace {

constexpr const char* kOperator = "Apply_v3";

// Every output of a convolution starts at another place of its padded input.
std::size_t padded_positions(std::size_t height, std::size_t width,
                             const std::array<std::size_t, 2>& padding) {
  const auto side = [](std::size_t n, std::size_t pad) {
    return static_cast<double>(n) + 2 * static_cast<double>(pad);
  };
  const double area = side(height, padding[0]) * side(width, padding[1]);
  return static_cast<std::size_t>(std::min(area, 0x1p40));
}

std::size_t positions_of(const Microbatch& microbatch) {
  std::size_t most = 1;
  const auto look = [&](const auto& form) {
    if constexpr (requires { form.layers; }) {
      for (const auto& layer : form.layers)
        std::visit(
            [&](const auto& pass) {
              if constexpr (requires { pass.positions; })
                most = std::max(most, pass.positions);
              else
                most = std::max(most, padded_positions(pass.height, pass.width, pass.padding));
            },
            layer);
    }
  };
  std::visit(look, microbatch);
  return most;
}

bool has_passes(const Microbatch& microbatch) {
  return std::visit(
      [](const auto& form) {
        return requires { form.layers; };
      },
      microbatch);
}

void check_records(const Mechanism::Fixed& fixed, const Mechanism::Accumulation& into,
                   std::size_t more) {
  if (into.statistics.records() + more > fixed.most_records)
    invalid_gradient(kOperator,
                     "the step has {} records, more than the {} that effective_batch_size {} "
                     "allows; declare the actual batch size",
                     into.statistics.records() + more, fixed.most_records,
                     fixed.sampling.batch.value_or(1));
}

void check_microbatch(const Mechanism::Fixed& fixed, const Microbatch& microbatch,
                      std::span<const std::uint32_t> classes, const Mechanism::Accumulation& into) {
  const DpConfig& dp = fixed.dp();
  if (!fixed.router && !classes.empty())
    invalid_input(kOperator, "records have classes, but the run has no routes");
  if (into.microbatches == dp.gradient_accumulation_steps)
    invalid_config(kOperator, "all {} microbatches of the step are accumulated; call release",
                   dp.gradient_accumulation_steps);
  check_records(fixed, into, records_of(microbatch));
  if (positions_of(microbatch) > fixed.most_positions)
    invalid_gradient(kOperator,
                     "a layer has {} positions, more than the {} whose rounding is charged; raise "
                     "most_positions, or use per-sample gradients",
                     positions_of(microbatch), fixed.most_positions);
  if (has_passes(microbatch) && !fixed.takes_passes())
    invalid_config(
        kOperator,
        "sums of backward passes have more rounding than sums of per-sample gradients, and this "
        "configuration does not charge it; set clipping.ghost: true or fused_kernel: true");
}

// The coordinates of the mask, of each record's own gradient.
template <class Clip>
RecordNorms clip_kept(const ModelLayout& layout, const CoordinateMask& mask,
                      const Microbatch& microbatch, const Clip& clipped) {
  const auto kept = [&](const auto& form) -> RecordNorms {
    using Form = std::decay_t<decltype(form)>;
    if constexpr (requires { form.tensors; }) {
      using Real = std::remove_const_t<typename decltype(Form::tensors)::value_type::element_type>;
      const Gathered<Real> cut(layout, mask, form, 0, form.records);
      return clipped(cut.gradients());
    } else {
      invalid_config(kOperator,
                     "noise.compression needs each record's gradient, which backward passes do not "
                     "have; use per-sample gradients");
    }
  };
  return std::visit(kept, microbatch);
}

}  // namespace

bool Mechanism::takes_passes() const noexcept { return fixed_->takes_passes(); }

bool Mechanism::fuses_passes() const {
  return fixed_->dp().enabled && fixed_->dp().fused_kernel && !fixed_->router &&
         is_fusible(state_->now.layout, state_->now.allocation.plan);
}

// Step 7: one microbatch.
void Mechanism::clip_into(const Microbatch& microbatch, std::span<const std::uint32_t> classes,
                          Accumulation& into) const {
  check_microbatch(*fixed_, microbatch, classes, into);
  if (!has_passes(microbatch)) into.sum.settle(fixed_->threads);
  const auto clipped = [&](const Microbatch& form) {
    return fixed_->router ? fixed_->router->clip(form, classes, fixed_->clip_method(),
                                                 fixed_->clip_options(), into.sum)
                          : clip(state_->now.layout, form, fixed_->clip_method(),
                                 state_->now.allocation.plan, fixed_->clip_options(), into.sum);
  };
  const RecordNorms norms = state_->now.mask
                                ? clip_kept(fixed_->layout, *state_->now.mask, microbatch, clipped)
                                : clipped(microbatch);
  into.statistics.add(norms);
  if (state_->clip_norms) into.counts.add(count_norms(*state_->clip_norms, norms));
}

void Mechanism::accumulate(const Microbatch& microbatch, bool more,
                           std::span<const std::uint32_t> classes) {
  if (state_->accumulation) {
    clip_into(microbatch, classes, *state_->accumulation);
  } else {
    Accumulation first(state_->now.layout, state_->now.allocation.plan.partition.parts(), spare());
    clip_into(microbatch, classes, first);
    state_->accumulation.emplace(std::move(first));
  }
  if (more) return;
  ++state_->accumulation->microbatches;
  ++state_->t_micro;
}

void Mechanism::drop_microbatches() noexcept {
  state_->elsewhere.reset();
  if (!state_->accumulation) return;
  state_->t_micro -= state_->accumulation->microbatches;
  state_->accumulation.reset();
}

void Mechanism::take_norms(RecordNorms& norms, std::optional<double> stability) {
  const Fixed& fixed = *fixed_;
  const DpConfig& dp = fixed.dp();
  if (fixed.has_grid() || fixed.is_laplace())
    invalid_config(kOperator,
                   "{} noise needs each record's own gradient; a step that the caller clips needs "
                   "the gaussian family",
                   spelling(dp.noise_family));
  if (dp.compression != Compression::kNone || fixed.router || dp.gradient_accumulation_steps != 1)
    invalid_config(kOperator,
                   "a step that the caller clips supports no compression, no routes and no "
                   "gradient_accumulation_steps; pass its norms in pieces");
  if (stability && !(std::isfinite(*stability) && *stability > 0))
    invalid_config(kOperator,
                   "the stability constant of automatic clipping is {}; it must be finite and "
                   "positive",
                   *stability);
  const ClipPlan& plan = state_->now.allocation.plan;
  if (stability && plan.flat_clip)
    invalid_config(
        kOperator,
        "automatic clipping supports one bound per part; hybrid has an additional flat bound");
  if (norms.norms.size() != norms.records * norms.parts)
    invalid_config(kOperator, "found {} norms for {} records of {} parts", norms.norms.size(),
                   norms.records, norms.parts);
  std::optional<Accumulation> first;
  if (!state_->elsewhere) first.emplace(ModelLayout({}), plan.partition.parts());
  Accumulation& into = first ? *first : *state_->elsewhere;
  check_records(fixed, into, norms.records);
  norms.zeroed.resize(norms.records);
  for (std::size_t i = 0; i < norms.records; ++i)
    for (std::size_t g = 0; g < norms.parts; ++g) {
      double& norm = norms.norms[i * norms.parts + g];
      if (norms.zeroed[i] == 0 && norm >= 0 && std::isfinite(norm)) continue;
      if (dp.nonfinite == NonfinitePolicy::kAbort && dp.enabled)
        invalid_gradient(kOperator,
                         "the gradient of record {} of the step is not finite in {}; set "
                         "nonfinite: zero to leave such records out",
                         into.statistics.records() + i, plan.partition.names.at(g));
      norms.zeroed[i] = 1;
      std::fill_n(norms.norms.begin() + static_cast<std::ptrdiff_t>(i * norms.parts), norms.parts,
                  0.0);
      break;
    }
  decide_scales(plan, norms, dp.enabled ? stability : std::nullopt);
  into.statistics.add(norms);
  if (state_->clip_norms) into.counts.add(count_norms(*state_->clip_norms, norms));
  if (first) state_->elsewhere.emplace(std::move(*first));
}

}  // namespace discreet::mechanism
