// Steps 5 to 7 of Apply_v3: what comes into a step, clipped here or elsewhere.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "discreet/config/config_table.h"
#include "discreet/mechanism/step/apply_impl.h"
#include "discreet/numerics/rounding.h"

namespace discreet::mechanism {
namespace {

using numerics::next_down;
using numerics::next_up;

constexpr const char* kOperator = "Apply_v3";

// Every output of a convolution begins at another place of its padded input.
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

}  // namespace

// Step 7: one microbatch.
void Mechanism::clip_into(const Microbatch& microbatch, std::span<const std::uint32_t> classes,
                          Accumulation& into) const {
  const DpConfig& dp = fixed_->dp();
  if (!fixed_->router && !classes.empty())
    throw Error(ErrorCode::kInvalidInput, kOperator,
                "records have classes, but the run has no routes");
  if (into.microbatches == dp.gradient_accumulation_steps)
    throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                fmt::format("all {} microbatches of the step are in; call release",
                            dp.gradient_accumulation_steps));
  if (into.statistics.records() + records_of(microbatch) > fixed_->most_records)
    throw Error(ErrorCode::kInvalidGradient, kOperator,
                fmt::format("a step of {} records is beyond the {} that effective_batch_size {} "
                            "admits; declare the batch size that is used",
                            into.statistics.records() + records_of(microbatch),
                            fixed_->most_records, fixed_->sampling.batch.value_or(1)));
  if (positions_of(microbatch) > fixed_->most_positions)
    throw Error(ErrorCode::kInvalidGradient, kOperator,
                fmt::format("a layer has {} positions, more than the {} whose rounding is charged; "
                            "declare most_positions, or give per-sample gradients",
                            positions_of(microbatch), fixed_->most_positions));
  if (dp.enabled && has_passes(microbatch) && !dp.clip_ghost && !dp.fused_kernel)
    throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                "backward passes are summed with more rounding than per-sample gradients, and this "
                "configuration does not charge it; set clipping.ghost: true or fused_kernel: true");
  const ClipOptions options = fixed_->clip_options();
  const ClipPlan& plan = state_->now.allocation.plan;
  if (!has_passes(microbatch)) into.sum.settle(fixed_->threads);
  RecordNorms norms;
  if (fixed_->router) {
    norms = fixed_->router->clip(microbatch, classes, options,
                                 fixed_->has_grid() ? *dp.noise_discrete : 0,
                                 fixed_->is_laplace() ? Norm::kL1 : Norm::kL2, into.sum);
  } else if (!dp.enabled) {
    norms = clip(state_->now.layout, microbatch, ClipStrategy::kPerSample, false, plan, options,
                 into.sum);
  } else if (state_->now.mask) {
    const auto gathered = [&](const auto& form) -> RecordNorms {
      using Form = std::decay_t<decltype(form)>;
      if constexpr (requires { form.tensors; }) {
        using Real =
            std::remove_const_t<typename decltype(Form::tensors)::value_type::element_type>;
        const Gathered<Real> cut(fixed_->layout, *state_->now.mask, form, 0, form.records);
        if (fixed_->has_grid())
          return clip_to_grid(state_->now.layout, cut.gradients(), plan, *dp.noise_discrete,
                              options, into.sum);
        return clip(state_->now.layout, cut.gradients(), dp.clip_strategy, false, plan, options,
                    into.sum);
      } else {
        throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                    "noise.compression cuts each record's gradient, and backward passes have none; "
                    "give per-sample gradients");
      }
    };
    norms = std::visit(gathered, microbatch);
  } else if (fixed_->has_grid()) {
    norms =
        clip_to_grid(state_->now.layout, microbatch, plan, *dp.noise_discrete, options, into.sum);
  } else if (fixed_->is_laplace()) {
    norms = clip_in_l1(state_->now.layout, microbatch, plan, options, into.sum);
  } else {
    norms = clip(state_->now.layout, microbatch, dp.clip_strategy, dp.fused_kernel, plan, options,
                 into.sum);
  }
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
  const auto refuse = [](std::string sentence) {
    throw Error(ErrorCode::kInvalidDpConfig, kOperator, std::move(sentence));
  };
  if (fixed.has_grid() || fixed.is_laplace())
    refuse(
        fmt::format("{} noise needs each record's own gradient; a step that is clipped "
                    "elsewhere takes the gaussian family",
                    spelling(dp.noise_family)));
  if (dp.compression != Compression::kNone || fixed.router || dp.gradient_accumulation_steps != 1)
    refuse(
        "a step that is clipped elsewhere has no compression, no routes and no "
        "gradient_accumulation_steps; its norms may come in pieces");
  if (stability && !(std::isfinite(*stability) && *stability > 0))
    refuse(
        fmt::format("the stability constant of automatic clipping is {}; it must be finite and "
                    "positive",
                    *stability));
  const ClipPlan& plan = state_->now.allocation.plan;
  if (stability && plan.flat_clip)
    refuse("automatic clipping has one bound per part; hybrid has one over all of them too");
  if (norms.norms.size() != norms.records * norms.parts)
    refuse(fmt::format("{} norms for {} records of {} parts", norms.norms.size(), norms.records,
                       norms.parts));
  std::optional<Accumulation> first;
  if (!state_->elsewhere) first.emplace(ModelLayout({}), plan.partition.parts());
  Accumulation& into = first ? *first : *state_->elsewhere;
  if (into.statistics.records() + norms.records > fixed.most_records)
    throw Error(ErrorCode::kInvalidGradient, kOperator,
                fmt::format("a step of {} records is beyond the {} that effective_batch_size {} "
                            "admits; declare the batch size that is used",
                            into.statistics.records() + norms.records, fixed.most_records,
                            fixed.sampling.batch.value_or(1)));
  norms.zeroed.resize(norms.records);
  for (std::size_t i = 0; i < norms.records; ++i)
    for (std::size_t g = 0; g < norms.parts; ++g) {
      double& norm = norms.norms[i * norms.parts + g];
      if (norms.zeroed[i] == 0 && norm >= 0 && std::isfinite(norm)) continue;
      if (dp.nonfinite == NonfinitePolicy::kAbort && dp.enabled)
        throw Error(ErrorCode::kInvalidGradient, kOperator,
                    fmt::format("the gradient of record {} of the step is not finite in {}; "
                                "nonfinite: zero leaves such records out",
                                into.statistics.records() + i, plan.partition.names.at(g)));
      norms.zeroed[i] = 1;
      std::fill_n(norms.norms.begin() + static_cast<std::ptrdiff_t>(i * norms.parts), norms.parts,
                  0.0);
      break;
    }
  decide_scales(plan, norms);
  if (stability && dp.enabled)
    for (std::size_t i = 0; i < norms.records; ++i)
      for (std::size_t g = 0; g < norms.parts && norms.zeroed[i] == 0; ++g)
        norms.scales[i * norms.parts + g] =
            next_down(plan.clip[g] / next_up(norms.norm(i, g) + *stability));
  into.statistics.add(norms);
  if (state_->clip_norms) into.counts.add(count_norms(*state_->clip_norms, norms));
  if (first) state_->elsewhere.emplace(std::move(*first));
}

}  // namespace discreet::mechanism
