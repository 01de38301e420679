#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "discreet/base/error.h"
#include "discreet/mechanism/config_resolve.h"
#include "discreet/mechanism/config_table.h"
#include "discreet/mechanism/noise.h"
#include "discreet/mechanism/prevalidation.h"

namespace discreet::mechanism {
namespace {

using namespace accounting;

constexpr std::uint64_t kMostBatches = std::uint64_t{1} << 24;
constexpr std::uint64_t kMostDecays = 100'000;  // below sigma's clamp long before

[[noreturn]] void missing(std::string_view key, std::string_view sentence) {
  throw Error(ErrorCode::kInvalidDpConfig, "PreValidation_v1",
              fmt::format("{}{} is missing; {}", kPrivacySection, key, sentence));
}

double accounted_rate(const DpConfig& c) {
  if (!c.sampling_rate) {
    missing("sampling_rate", "give it, or declared_size and effective_batch_size");
  }
  return c.clip_ghost ? std::min(1.0, *c.sampling_rate * c.accounting_adjustment_factor)
                      : *c.sampling_rate;
}

std::uint64_t declared(const std::optional<std::uint64_t>& number, std::string_view key,
                       const DpConfig& c) {
  if (!number) missing(key, fmt::format("sampling_mode {} needs it", spelling(c.sampling_mode)));
  return *number;
}

std::uint64_t checked_batches(const DpConfig& c) {
  if (accounted_rate(c) != *c.sampling_rate) {
    throw Error(
        ErrorCode::kInvalidDpConfig, "PreValidation_v1",
        fmt::format("{}accounting_adjustment_factor is {}; {} has no rate to adjust: 1",
                    kPrivacySection, c.accounting_adjustment_factor, spelling(c.sampling_mode)));
  }
  const std::uint64_t batches = batches_per_epoch(c);
  if (batches > kMostBatches) {
    throw Error(ErrorCode::kInvalidDpConfig, "PreValidation_v1",
                fmt::format("{}effective_batch_size gives {} batches an epoch; at most 2^24 can be "
                            "accounted for",
                            kPrivacySection, batches));
  }
  return batches;
}

Mechanism mechanism_of(const DpConfig& c, double noise) {
  switch (c.noise_family) {
    case NoiseFamily::kGaussian: break;
    case NoiseFamily::kRoundedGaussian: return RoundedGaussian{noise};
    case NoiseFamily::kLaplace: return Laplace{laplace_scale(noise)};
    case NoiseFamily::kDiscreteGaussian:
      return DiscreteGaussian{noise, c.clip_norm / c.noise_discrete.value_or(1)};
    case NoiseFamily::kSkellam: {
      const double bound = c.clip_norm / c.noise_discrete.value_or(1);
      return Skellam{noise * bound * noise * bound, bound, bound, bound};
    }
  }
  if (!c.clip_norm_adaptive || c.adaptive_accounting == AdaptiveAccounting::kHeuristic) {
    return Gaussian{noise};
  }
  return GaussianGroups{{{noise, c.clip_norm}}, std::nullopt, Adaptation{2, c.adaptive_noise}};
}

// Steps [begin, end) at one noise, or at one that decays.
void append(std::vector<RepeatedEvent>& events, const DpConfig& c, std::uint64_t begin,
            std::uint64_t end) {
  const std::uint64_t unit = is_epoch_event(c.sampling_mode) ? batches_per_epoch(c) : 1;
  const auto add = [&](double noise, std::uint64_t steps) {
    if (steps > 0) events.push_back({step_event(c, noise), steps / unit});
  };
  if (c.mode == ScheduleMode::kFixed) return add(c.noise_multiplier, end - begin);
  for (std::uint64_t level = begin / c.decay_every; level * c.decay_every < end; ++level) {
    const std::uint64_t from = std::max(begin, level * c.decay_every);
    const std::uint64_t to = std::min(end, (level + 1) * c.decay_every);
    double noise = c.noise_multiplier;
    for (std::uint64_t i = 0; i < level; ++i) noise *= c.decay_factor;
    add(std::clamp(noise, 1e-8, 1e8), to - from);
  }
}

std::string why_unknown(const DpConfig& c) {
  if (!c.enabled) return "enabled is false";
  if (!c.target_steps) return "target_steps is not given";
  if (c.noise_multiplier == 0) return "noise_multiplier is 0";
  for (const PhaseOverride* phase : {&c.warmup, &c.main, &c.cooldown}) {
    if (phase->noise_multiplier == 0.0) return "a phase has no noise";
  }
  if (c.mode != ScheduleMode::kFixed && c.mode != ScheduleMode::kStepDecay) {
    return fmt::format("in mode {} the noise follows the budget", spelling(c.mode));
  }
  if (c.mode == ScheduleMode::kStepDecay && *c.target_steps / c.decay_every > kMostDecays) {
    return "the noise decays too often to list";
  }
  const bool several =
      c.clip_strategy == ClipStrategy::kPerLayer || c.clip_strategy == ClipStrategy::kPerGroup ||
      c.clip_strategy == ClipStrategy::kPerTensor || c.clip_strategy == ClipStrategy::kHybrid;
  if (several && c.clip_norm_adaptive) {
    return fmt::format("adaptive {} clipping releases two counts for each part of the model",
                       spelling(c.clip_strategy));
  }
  if (c.per_layer_multiplier) return "factors on sigma by name depend on the model";
  if (c.noise_family == NoiseFamily::kSkellam) return "Skellam noise depends on the model's size";
  return {};
}

}  // namespace

Sampling sampling_of(const DpConfig& c) {
  switch (c.sampling_mode) {
    case SamplingMode::kPoisson: return Poisson{accounted_rate(c)};
    case SamplingMode::kTruncatedPoisson:
      return TruncatedPoisson{accounted_rate(c), declared(c.truncated_batch, "truncated_batch", c),
                              declared(c.declared_size, "declared_size", c)};
    case SamplingMode::kFixedSize: {
      const std::uint64_t population = declared(c.declared_size, "declared_size", c);
      const std::uint64_t batch = declared(c.effective_batch_size, "effective_batch_size", c);
      if (!c.clip_ghost || c.accounting_adjustment_factor == 1) return FixedSize{batch, population};
      const double more = std::ceil(accounted_rate(c) * static_cast<double>(population));
      return FixedSize{std::min(population, static_cast<std::uint64_t>(more)), population};
    }
    case SamplingMode::kBallsAndBins: return BallsAndBins{checked_batches(c)};
    case SamplingMode::kShuffledEpoch: return ShuffledEpoch{checked_batches(c)};
    case SamplingMode::kSequential: break;
  }
  return NoSampling{};
}

Event step_event(const DpConfig& c, double noise_multiplier) {
  return {mechanism_of(c, noise_multiplier), sampling_of(c), c.adjacency};
}

PlannedRun planned_run(const DpConfig& c) {
  PlannedRun run;
  run.unknown = why_unknown(c);
  if (!run.unknown.empty()) return run;
  const std::uint64_t end = *c.target_steps;
  const bool bounded = c.warmup.until_step || c.main.until_step;
  if (!bounded) {
    append(run.events, in_phase(c, c.training_phase), 0, end);
    return run;
  }
  const std::uint64_t warm = std::min(end, c.warmup.until_step.value_or(0));
  const std::uint64_t cool = std::min(end, c.main.until_step.value_or(end));
  append(run.events, in_phase(c, TrainingPhase::kWarmup), 0, warm);
  append(run.events, in_phase(c, TrainingPhase::kMain), warm, cool);
  append(run.events, in_phase(c, TrainingPhase::kCooldown), cool, end);
  return run;
}

}  // namespace discreet::mechanism
