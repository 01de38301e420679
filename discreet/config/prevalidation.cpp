#include "discreet/config/prevalidation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "discreet/accounting/accountant.h"
#include "discreet/base/error.h"
#include "discreet/config/config_resolve.h"
#include "discreet/config/config_table.h"

namespace discreet {
namespace {

constexpr std::uint64_t kMostCountedSteps = std::uint64_t{1} << 24;

[[noreturn]] void invalid_key(std::string_view key, std::string_view sentence) {
  invalid_config("PreValidation_v1", "{}{} {}", kPrivacySection, key, sentence);
}

bool has_several_parts(ClipStrategy strategy) {
  return strategy == ClipStrategy::kPerLayer || strategy == ClipStrategy::kPerGroup ||
         strategy == ClipStrategy::kPerTensor || strategy == ClipStrategy::kHybrid;
}

void check_ranges(const DpConfig& config) {
  Config whole;
  whole.privacy = config;
  for (const Key<Config>& key : config_keys()) {
    if (!key.path.starts_with(kPrivacySection) || !key.alias_of.empty()) continue;
    const KeyValue value = key.get(whole);
    if (const std::string bad = complaint(key, value); !bad.empty()) {
      invalid_key(std::string_view(key.path).substr(kPrivacySection.size()), bad);
    }
  }
  // Under clipping.norm: adaptive the table shows the word, not the number.
  if (!(config.clip_norm > 0) || !std::isfinite(config.clip_norm)) {
    invalid_key("clipping.adaptive.initial",
                fmt::format("is {}; it must be a finite number above 0", config.clip_norm));
  }
}

void check_accumulation(const DpConfig& c) {
  if (!c.accumulation_context) return;
  const auto [current, is_final] = *c.accumulation_context;
  if (current >= c.gradient_accumulation_steps) {
    invalid_key(
        "accumulation_context.current_step",
        fmt::format("is {}; with gradient_accumulation_steps {} it must be at most {}", current,
                    c.gradient_accumulation_steps, c.gradient_accumulation_steps - 1));
  }
  const bool last = current + 1 == c.gradient_accumulation_steps;
  if (is_final != last) {
    invalid_key("accumulation_context.is_final",
                fmt::format("is {} at microbatch {} of {}; it must be true exactly for the last",
                            is_final, current, c.gradient_accumulation_steps));
  }
}

// Steps 1b of the procedure.
void check_sampler(const DpConfig& c) {
  if (c.subsampling != subsampling_of(c.sampling_mode)) {
    invalid_key("subsampling",
                fmt::format("is {}; the sampling_mode {} needs {}", spelling(c.subsampling),
                            spelling(c.sampling_mode), spelling(subsampling_of(c.sampling_mode))));
  }
  if (c.truncated_batch && c.sampling_mode != SamplingMode::kTruncatedPoisson) {
    invalid_key(
        "truncated_batch",
        fmt::format(
            "is {}, but only TRUNCATED_POISSON_V1 truncates, and sampling_mode is {}; remove it",
            *c.truncated_batch, spelling(c.sampling_mode)));
  }
}

void check_noise_number(const DpConfig& c, std::string_view key, double noise) {
  if (noise == 0 && !c.debug) {
    invalid_key(key,
                "is 0, which protects nobody; set a positive value, or debug: true to mark the run "
                "not_private");
  }
  if (noise != 0 && noise < 1e-8) {
    invalid_key(key, fmt::format("is {}; it must be in [1e-08, 1e+08], or 0 with debug", noise));
  }
}

void check_noise(const DpConfig& c) {
  check_noise_number(c, "noise_multiplier", c.noise_multiplier);
  const std::pair<const char*, const PhaseOverride*> phases[] = {
      {"phases.warmup", &c.warmup}, {"phases.main", &c.main}, {"phases.cooldown", &c.cooldown}};
  for (const auto& [name, phase] : phases) {
    if (phase->noise_multiplier) {
      check_noise_number(c, fmt::format("{}.noise_multiplier", name), *phase->noise_multiplier);
      if (c.mode == ScheduleMode::kMeetExactly) {
        invalid_key(fmt::format("{}.noise_multiplier", name),
                    fmt::format("is {}, but the mode meet_exactly_at_target_steps determines the "
                                "noise itself; remove it",
                                *phase->noise_multiplier));
      }
    }
    if (phase->clip_norm && c.clip_norm_adaptive) {
      invalid_key(fmt::format("{}.clip_norm", name),
                  fmt::format("is {}, but the bound is adaptive and follows the norms; remove it",
                              *phase->clip_norm));
    }
  }
  if (c.noise_family == NoiseFamily::kLaplace) {
    if (c.clip_ghost || c.fused_kernel) {
      invalid_key(
          "noise.family",
          fmt::format("is laplace, which needs the L1 norm of each record's gradient; {} does not "
                      "compute it: set clipping.ghost and fused_kernel to false, or use gaussian",
                      c.clip_ghost ? "ghost clipping" : "the fused kernel"));
    }
    if (c.compression != Compression::kNone) {
      invalid_key(
          "noise.compression",
          fmt::format("is {}; with noise.family laplace it must be none", spelling(c.compression)));
    }
  }
  if (has_grid(c.noise_family) && !c.noise_discrete) {
    invalid_key("noise.family", fmt::format("is {}; also set noise.discrete, its grid step",
                                            spelling(c.noise_family)));
  }
  if (!has_grid(c.noise_family) && c.noise_discrete) {
    invalid_key("noise.discrete", fmt::format("is {}, but noise.family {} has no grid: use "
                                              "rounded_gaussian, or remove noise.discrete",
                                              *c.noise_discrete, spelling(c.noise_family)));
  }
  int exponent = 0;
  if (c.noise_discrete && std::frexp(*c.noise_discrete, &exponent) != 0.5) {
    invalid_key(
        "noise.discrete",
        fmt::format("is {}; sums are exact only on a grid that is a power of two, such as {}",
                    *c.noise_discrete, std::ldexp(1.0, exponent)));
  }
  if (has_grid(c.noise_family) && (c.clip_ghost || c.fused_kernel)) {
    invalid_key(
        "noise.family",
        fmt::format("is {}, but {} has no gradient per record that could be rounded to the grid",
                    spelling(c.noise_family),
                    c.clip_ghost ? "ghost clipping" : "the fused kernel"));
  }
  if (c.compression != Compression::kNone && (c.clip_ghost || c.fused_kernel)) {
    invalid_key(
        "noise.compression",
        fmt::format("is {}, which needs the gradient of each record; {} does not form it: set "
                    "clipping.ghost and fused_kernel to false, or use none",
                    spelling(c.compression), c.clip_ghost ? "ghost clipping" : "the fused kernel"));
  }
  if (c.compression == Compression::kNone && c.compression_keep != 1) {
    invalid_key(
        "noise.compression_keep",
        fmt::format("is {}, but noise.compression is none; set a compression", c.compression_keep));
  }
  if (c.noise_seed_per_step && c.target_steps.value_or(0) > kMostCountedSteps) {
    invalid_key(
        "target_steps",
        fmt::format("is {}; noise_seed_per_step supports at most 2^24 steps", *c.target_steps));
  }
}

void check_clipping(const DpConfig& c) {
  if (!has_several_parts(c.clip_strategy) && c.clip_norm_map) {
    invalid_key("clip_norm_map",
                fmt::format("has bounds by name, but the strategy {} has one bound; use per_layer, "
                            "per_group, per_tensor or hybrid, or set clipping.norm",
                            spelling(c.clip_strategy)));
  }
  if ((c.privacy_allocation == AllocationMode::kCustom) != c.sigma_map.has_value()) {
    if (c.sigma_map) {
      invalid_key("sigma_map", fmt::format("is set, but privacy_allocation is {}; use custom",
                                           spelling(c.privacy_allocation)));
    }
    invalid_key("privacy_allocation",
                "is custom; also set sigma_map, the noise multipliers by name");
  }
  if (c.adaptive_accounting == AdaptiveAccounting::kHeuristic) {
    if (c.regulated) {
      invalid_key("privacy.adaptive_accounting",
                  "is heuristic, which regulated forbids; use conservative");
    }
    if (!c.allow_nonprivate_adaptation) {
      invalid_key("privacy.adaptive_accounting",
                  "is heuristic: the bound would follow private norms without accounting; use "
                  "conservative, or allow_nonprivate_adaptation: true to mark the run not_private");
    }
  }
  if (!c.clip_norm_adaptive) return;
  if (c.adaptive_lower > c.adaptive_upper) {
    invalid_key("clipping.adaptive.lower",
                fmt::format("is {}; it must be at most clipping.adaptive.upper {}",
                            c.adaptive_lower, c.adaptive_upper));
  }
  if (c.clip_norm < c.adaptive_lower || c.clip_norm > c.adaptive_upper) {
    invalid_key("clipping.adaptive.initial",
                fmt::format("is {}; it must be between the bounds {} and {}", c.clip_norm,
                            c.adaptive_lower, c.adaptive_upper));
  }
  if (c.noise_family != NoiseFamily::kGaussian) {
    invalid_key("clipping.norm",
                fmt::format("is adaptive; its counts need gaussian noise, but noise.family is {}",
                            spelling(c.noise_family)));
  }
}

void check_regulated(const DpConfig& c) {
  if (!c.regulated) return;
  if (c.debug) invalid_key("debug", "is true, which regulated forbids");
  if (!c.secure)
    invalid_key("secure", "is false, which regulated forbids: noise needs a secret key");
  if (c.allow_nonprivate_adaptation) {
    invalid_key("allow_nonprivate_adaptation", "is true, which regulated forbids");
  }
  if (c.clip_ghost && !c.ghost_bound_hash) {
    invalid_key(
        "ghost_bound_hash",
        "is missing; with regulated, ghost clipping needs the SHA-256 of its audited bound");
  }
}

void check_schedule(const DpConfig& c, std::uint64_t t) {
  const bool follows_budget = c.mode == ScheduleMode::kMeetExactly ||
                              c.mode == ScheduleMode::kBudgetAdaptive ||
                              c.mode == ScheduleMode::kDynamicProjection;
  if (follows_budget && !c.target_steps) {
    invalid_key("mode",
                fmt::format("is {}; also set target_steps, over which it divides the budget",
                            spelling(c.mode)));
  }
  if (follows_budget && t >= *c.target_steps) {
    invalid_key("target_steps",
                fmt::format("is {}, but step {} was requested; the planned run is complete",
                            *c.target_steps, t));
  }
  const std::uint64_t warm = c.warmup.until_step.value_or(0);
  if (c.main.until_step && *c.main.until_step < warm) {
    invalid_key(
        "phases.main.until_step",
        fmt::format("is {}, before the end of the warmup at step {}", *c.main.until_step, warm));
  }
  if (c.noise_seed_per_step && t >= kMostCountedSteps) {
    invalid_key("noise_seed_per_step",
                fmt::format("supports at most 2^24 steps, but step {} was requested", t));
  }
  if (!is_epoch_event(c.sampling_mode)) return;
  if (c.accountant_granularity != Granularity::kPerEpoch) {
    invalid_key("accountant_granularity",
                fmt::format("is PER_STEP, but the event of {} is the whole epoch; set PER_EPOCH",
                            spelling(c.sampling_mode)));
  }
  const std::uint64_t batches = batches_per_epoch(c);
  const auto whole = [&](std::string_view key, const std::optional<std::uint64_t>& steps) {
    if (steps && *steps % batches != 0) {
      invalid_key(key, fmt::format("is {}; with {} batches per epoch it must be a multiple of {}",
                                   *steps, batches, batches));
    }
  };
  whole("target_steps", c.target_steps);
  whole("phases.warmup.until_step", c.warmup.until_step);
  whole("phases.main.until_step", c.main.until_step);
  if (c.mode == ScheduleMode::kStepDecay) whole("decay.every", c.decay_every);
}

// II.G: the accountant itself says what it can bound; every noise that the run may use is offered.
void check_accountant(const DpConfig& c) {
  std::vector<double> offered;
  const auto offer = [&](double noise) {
    if (noise > 0) offered.push_back(noise);
  };
  for (const TrainingPhase phase :
       {TrainingPhase::kWarmup, TrainingPhase::kMain, TrainingPhase::kCooldown}) {
    offer(in_phase(c, phase).noise_multiplier);
  }
  if (c.mode != ScheduleMode::kFixed) offer(c.noise_multiplier * 2);
  const auto accountant = accounting::make_accountant(spelling(c.accountant));
  for (const double noise : offered) {
    try {
      accountant->compose(step_event(c, noise));
    } catch (const Error& error) {
      if (error.op() == "PreValidation_v1") throw;
      invalid_key("accountant",
                  fmt::format("is {}, for {} under {}: {}", spelling(c.accountant),
                              spelling(c.sampling_mode), spelling(c.adjacency), error.sentence()));
    }
  }
}

}  // namespace

void prevalidate(const DpConfig& config, std::uint64_t t) {
  check_ranges(config);
  check_accumulation(config);
  if (!config.enabled) return;
  check_sampler(config);
  const DpConfig c = resolve(config).config;
  sampling_of(c);
  if (c.sampling_mode == SamplingMode::kSequential && batches_per_epoch(c) > 1 &&
      c.adjacency == accounting::Adjacency::kAddRemove) {
    invalid_key("adjacency",
                "is add_remove; removing a record would move all later records of SEQUENTIAL_V1 to "
                "other batches: use zero_out, or full batches");
  }
  if (!c.effective_batch_size) {
    invalid_key("effective_batch_size",
                "is missing; set it (the public divisor of the sum), or declared_size");
  }
  check_noise(c);
  check_clipping(c);
  check_regulated(c);
  check_schedule(c, t);
  check_accountant(c);
}

void prevalidate_step(const DpConfig& accepted, std::uint64_t t) {
  if (accepted.enabled) check_schedule(accepted, t);
}

std::vector<std::string> not_private_reasons(const DpConfig& config) {
  std::vector<std::string> reasons;
  if (!config.enabled) reasons.emplace_back("enabled is false: gradients pass unchanged");
  if (config.debug) reasons.emplace_back("debug is true: noise may be absent");
  if (!config.secure) {
    reasons.emplace_back("secure is false: noise and sampling follow from the public seed");
  }
  if (config.adaptive_accounting == AdaptiveAccounting::kHeuristic) {
    reasons.emplace_back(
        "privacy.adaptive_accounting is heuristic: adaptation to private norms is not paid for");
  }
  return reasons;
}

bool is_epoch_event(SamplingMode mode) {
  return mode == SamplingMode::kBallsAndBins || mode == SamplingMode::kShuffledEpoch;
}

Subsampling subsampling_of(SamplingMode mode) {
  switch (mode) {
    case SamplingMode::kPoisson:
    case SamplingMode::kTruncatedPoisson: return Subsampling::kPoisson;
    case SamplingMode::kSequential: return Subsampling::kNone;
    default: return Subsampling::kShuffleWithoutReplacement;
  }
}

}  // namespace discreet
