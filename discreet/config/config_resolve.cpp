#include "discreet/config/config_resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "discreet/base/error.h"
#include "discreet/config/config_table.h"
#include "discreet/config/prevalidation.h"

namespace discreet {
namespace {

[[noreturn]] void invalid_key(std::string_view key, std::string_view sentence) {
  invalid_config("ConfigResolver_v1", "{}{} {}", kPrivacySection, key, sentence);
}

class Merge {
 public:
  Merge(const DpConfig& config, ParallelismType runs_on) : c(config) {
    overrides();
    strategy();
    phases();
    sizes();
    who_is_a_neighbour();
    engine(runs_on);
    without_effect();
    sort(c.public_modules);
    sort(c.public_groups);
    for (auto* map :
         {&c.clip_norm_map, &c.sensitivity_map, &c.sigma_map, &c.per_layer_multiplier}) {
      if (*map && (*map)->empty()) map->reset();
    }
  }

  DpConfig c;
  std::vector<std::string> notes;

 private:
  static void sort(std::vector<std::string>& names) {
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
  }

  void override_by(const std::string& name, const Override& said,
                   std::vector<std::string>& public_names) {
    const auto put = [&](std::optional<NumberMap>& map, double value) {
      if (!map) map.emplace();
      (*map)[name] = value;
    };
    if (said.clip_norm) put(c.clip_norm_map, *said.clip_norm);
    if (said.sigma_multiplier) put(c.per_layer_multiplier, *said.sigma_multiplier);
    if (!said.is_public) return;
    std::erase(public_names, name);
    if (*said.is_public) public_names.push_back(name);
  }

  void overrides() {
    for (const auto& [name, said] : c.groups) {
      const auto twin = c.modules.find(name);
      if (twin == c.modules.end()) continue;
      const auto differ = [](const auto& a, const auto& b) { return a && b && *a != *b; };
      if (differ(said.clip_norm, twin->second.clip_norm) ||
          differ(said.sigma_multiplier, twin->second.sigma_multiplier)) {
        invalid_key("groups",
                    fmt::format("of {} differs from modules of {}; keep one of them", name, name));
      }
    }
    for (const auto& [name, said] : c.modules) override_by(name, said, c.public_modules);
    for (const auto& [name, said] : c.groups) override_by(name, said, c.public_groups);
    c.modules.clear();
    c.groups.clear();
  }

  void strategy() {
    if (c.clip_strategy == ClipStrategy::kGhost) c.clip_ghost = true;
    if (c.clip_strategy == ClipStrategy::kAdaptive) c.clip_norm_adaptive = true;
    if (c.clip_strategy == ClipStrategy::kPerSample && c.clip_ghost) {
      c.clip_strategy = ClipStrategy::kGhost;
    }
    if (c.clip_strategy == ClipStrategy::kPerSample && c.clip_norm_adaptive) {
      c.clip_strategy = ClipStrategy::kAdaptive;
    }
    if (c.clip_strategy == ClipStrategy::kAdaptive && c.clip_ghost) {
      c.clip_strategy = ClipStrategy::kGhost;
    }
  }

  void end_of(const char* key, PhaseOverride& phase, std::uint64_t begin) {
    if (phase.steps) {
      const std::uint64_t end = begin + *phase.steps;
      if (phase.until_step && *phase.until_step != end) {
        invalid_key(key,
                    fmt::format("is {}, which ends at step {}, but until_step is {}; keep one of "
                                "them",
                                *phase.steps, end, *phase.until_step));
      }
      phase.until_step = end;
      phase.steps.reset();
    }
    if (phase.until_step && *phase.until_step < begin) {
      invalid_key(key, fmt::format("ends the phase at step {}, before its start at step {}",
                                   *phase.until_step, begin));
    }
  }

  void phases() {
    end_of("phases.warmup.steps", c.warmup, 0);
    const std::uint64_t warm = c.warmup.until_step.value_or(0);
    end_of("phases.main.steps", c.main, warm);
    if (!c.cooldown.steps) return;
    if (!c.target_steps) {
      invalid_key("phases.cooldown.steps",
                  fmt::format("is {}; it counts back from target_steps, which is not set",
                              *c.cooldown.steps));
    }
    if (*c.cooldown.steps > *c.target_steps - std::min(warm, *c.target_steps)) {
      invalid_key("phases.cooldown.steps",
                  fmt::format("is {}, but only {} steps follow the warmup", *c.cooldown.steps,
                              *c.target_steps - std::min(warm, *c.target_steps)));
    }
    const std::uint64_t end = *c.target_steps - *c.cooldown.steps;
    if (c.main.until_step && *c.main.until_step != end) {
      invalid_key(
          "phases.cooldown.steps",
          fmt::format("is {}, which starts at step {}, but main ends at step {}; keep one of them",
                      *c.cooldown.steps, end, *c.main.until_step));
    }
    c.main.until_step = end;
    c.cooldown.steps.reset();
  }

  // Fills in the third of rate, batch and size.
  void sizes() {
    const auto real = [](const std::optional<std::uint64_t>& n) { return static_cast<double>(*n); };
    const auto nearest_count = [](double x) {
      return std::max<std::uint64_t>(1,
                                     static_cast<std::uint64_t>(std::min(std::round(x), 0x1p51)));
    };
    auto& size = c.declared_size;
    auto& rate = c.sampling_rate;
    auto& batch = c.effective_batch_size;
    const bool in_order = c.sampling_mode == SamplingMode::kSequential;
    if (in_order && !rate && !batch) batch = size;
    if (size && batch && *batch > *size) {
      invalid_key("effective_batch_size",
                  fmt::format("is {}; it must be at most the declared_size of {}", *batch, *size));
    }
    if (size && batch && rate) {
      if (!(std::fabs(*rate * real(size) - real(batch)) < 1)) {
        invalid_key(
            "sampling_rate",
            fmt::format(
                "is {}, but effective_batch_size / declared_size is {} / {}; set two of the three",
                *rate, *batch, *size));
      }
    } else if (size && rate) {
      batch = nearest_count(*rate * real(size));
    } else if (batch && rate) {
      size = nearest_count(real(batch) / *rate);
    } else if (size && batch) {
      rate = real(batch) / real(size);
    }
    // Only coins have a rate of their own.
    const bool by_coins = c.sampling_mode == SamplingMode::kPoisson ||
                          c.sampling_mode == SamplingMode::kTruncatedPoisson;
    if (!by_coins && size && batch) rate = real(batch) / real(size);
  }

  void who_is_a_neighbour() {
    if (c.declared_size || c.adjacency != accounting::Adjacency::kAddRemove) return;
    c.adjacency = accounting::Adjacency::kZeroOut;
    notes.push_back(
        "adjacency is zero_out: without declared_size, nothing bounds what the number of records "
        "reveals");
  }

  void engine(ParallelismType runs_on) {
    if (c.parallelism == runs_on) return;
    notes.push_back(fmt::format("parallelism.type {} resolves to {}, the engine of this process",
                                spelling(c.parallelism), spelling(runs_on)));
    c.parallelism = runs_on;
  }

  void without_effect() {
    const bool flat = c.clip_strategy == ClipStrategy::kPerSample ||
                      c.clip_strategy == ClipStrategy::kGhost ||
                      c.clip_strategy == ClipStrategy::kPeftTargeted ||
                      c.clip_strategy == ClipStrategy::kAdaptive;
    if (flat && c.fused_kernel) {
      notes.push_back(
          fmt::format("fused_kernel has no effect: the strategy {} has one bound over all layers, "
                      "so the norm is complete only after the last layer",
                      spelling(c.clip_strategy)));
    }
    if (c.clip_strategy == ClipStrategy::kHybrid && c.fused_kernel) {
      notes.push_back(
          "fused_kernel has no effect: the strategy hybrid has a bound over all groups, so the "
          "norm "
          "is complete only after the last layer");
    }
    if (flat && c.privacy_allocation == AllocationMode::kLayerWise) {
      notes.push_back(
          fmt::format("privacy_allocation layer_wise has no effect: the strategy {} has one bound, "
                      "so there is only one part",
                      spelling(c.clip_strategy)));
    }
    if (c.sigma_map && c.mode == ScheduleMode::kMeetExactly) {
      notes.push_back(
          "sigma_map gives the ratios of the noise: the mode meet_exactly_at_target_steps "
          "determines "
          "its scale");
    }
    if (!c.clip_ghost && c.accounting_adjustment_factor != 1) {
      notes.push_back(
          fmt::format("accounting_adjustment_factor {} has no effect: it adjusts the rate of ghost "
                      "clipping, and clipping.ghost is false",
                      c.accounting_adjustment_factor));
    }
    if (c.hierarchical) {
      notes.push_back(
          "parallelism.hierarchical has no effect: the engine of this process has one process, so "
          "nothing is reduced between nodes");
    }
    if (c.projection_policy != ProjectionPolicy::kAdvise && !c.target_steps) {
      notes.push_back(
          fmt::format("projection.policy {} has no effect: nothing is projected without "
                      "target_steps",
                      spelling(c.projection_policy)));
    }
    if (c.accounting_approximation_policy) {
      notes.push_back("accounting_approximation_policy is recorded, but no bound depends on it");
    }
  }
};

}  // namespace

Resolved resolve(const DpConfig& config, std::optional<AccumulationContext> accumulation,
                 ParallelismType runs_on) {
  Merge merge(config, runs_on);
  const AccumulationContext first{0, config.gradient_accumulation_steps <= 1};
  Resolved out{std::move(merge.c),
               accumulation ? *accumulation : config.accumulation_context.value_or(first),
               std::move(merge.notes)};
  out.config.accumulation_context = out.accumulation;
  return out;
}

Config without_epochs(Config config) {
  auto& epochs = config.run.epochs;
  if (!epochs) return config;
  const auto invalid_epochs = [&](const std::string& why) {
    invalid_config("ConfigResolver_v1", "run.epochs is {}, {}", *epochs, why);
  };
  DpConfig sizes = config.privacy;
  sizes.warmup = sizes.main = sizes.cooldown = {};  // they may need target_steps
  sizes = resolve(sizes).config;
  if (!sizes.sampling_rate) {
    invalid_epochs(
        "but the number of steps per epoch is unknown; set two of declared_size, "
        "effective_batch_size and sampling_rate");
  }
  const double most = static_cast<double>(*epochs) * static_cast<double>(batches_per_epoch(sizes));
  if (most > 0x1p53) invalid_epochs("which exceed 2^53 steps");
  const std::uint64_t steps = *epochs * batches_per_epoch(sizes);
  auto& target = config.privacy.target_steps;
  if (target && *target != steps) {
    invalid_epochs(fmt::format("which are {} steps, but {}target_steps is {}; keep one of them",
                               steps, kPrivacySection, *target));
  }
  target = steps;
  epochs.reset();
  return config;
}

TrainingPhase phase_at(const DpConfig& resolved, std::uint64_t t) {
  if (!resolved.warmup.until_step && !resolved.main.until_step) return resolved.training_phase;
  if (t < resolved.warmup.until_step.value_or(0)) return TrainingPhase::kWarmup;
  if (resolved.main.until_step && t >= *resolved.main.until_step) return TrainingPhase::kCooldown;
  return TrainingPhase::kMain;
}

DpConfig in_phase(const DpConfig& resolved, TrainingPhase phase) {
  DpConfig config = resolved;
  const PhaseOverride& said = phase == TrainingPhase::kWarmup ? resolved.warmup
                              : phase == TrainingPhase::kMain ? resolved.main
                                                              : resolved.cooldown;
  config.training_phase = phase;
  if (said.noise_multiplier) config.noise_multiplier = *said.noise_multiplier;
  if (said.clip_norm) config.clip_norm = *said.clip_norm;
  return config;
}

std::uint64_t batches_per_epoch(const DpConfig& resolved) {
  const auto& size = resolved.declared_size;
  const auto& batch = resolved.effective_batch_size;
  if (size && batch) return (*size - 1) / *batch + 1;
  // 1 / q, with q the nearest number to 1 / S, must give S.
  const double steps = std::ceil(1 / resolved.sampling_rate.value_or(1) * (1 - 0x1p-40));
  return static_cast<std::uint64_t>(std::min(steps, 0x1p53));
}

}  // namespace discreet
