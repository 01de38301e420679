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

[[noreturn]] void refuse(std::string_view key, std::string_view sentence) {
  throw Error(ErrorCode::kInvalidDpConfig, "PreValidation_v1",
              fmt::format("{}{} {}", kPrivacySection, key, sentence));
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
      refuse(std::string_view(key.path).substr(kPrivacySection.size()), bad);
    }
  }
  // Under clipping.norm: adaptive the table shows the word, not the number.
  if (!(config.clip_norm > 0) || !std::isfinite(config.clip_norm)) {
    refuse("clipping.adaptive.initial",
           fmt::format("is {}; it must be a finite number above 0", config.clip_norm));
  }
}

void check_accumulation(const DpConfig& c) {
  if (!c.accumulation_context) return;
  const auto [current, is_final] = *c.accumulation_context;
  if (current >= c.gradient_accumulation_steps) {
    refuse("accumulation_context.current_step",
           fmt::format("is {}; with gradient_accumulation_steps {} it is at most {}", current,
                       c.gradient_accumulation_steps, c.gradient_accumulation_steps - 1));
  }
  const bool last = current + 1 == c.gradient_accumulation_steps;
  if (is_final != last) {
    refuse("accumulation_context.is_final",
           fmt::format("is {} at microbatch {} of {}; it is true exactly at the last", is_final,
                       current, c.gradient_accumulation_steps));
  }
}

// Steps 1b of the procedure.
void check_sampler(const DpConfig& c) {
  if (c.subsampling != subsampling_of(c.sampling_mode)) {
    refuse("subsampling",
           fmt::format("is {}; the sampling_mode {} needs {}", spelling(c.subsampling),
                       spelling(c.sampling_mode), spelling(subsampling_of(c.sampling_mode))));
  }
  if (c.truncated_batch && c.sampling_mode != SamplingMode::kTruncatedPoisson) {
    refuse("truncated_batch", fmt::format("is {}; only TRUNCATED_POISSON_V1 truncates, and "
                                          "sampling_mode is {}",
                                          *c.truncated_batch, spelling(c.sampling_mode)));
  }
}

void check_noise_number(const DpConfig& c, std::string_view key, double noise) {
  if (noise == 0 && !c.debug) {
    refuse(key,
           "is 0, which protects nobody; give noise, or debug: true to stamp the run "
           "not_private");
  }
  if (noise != 0 && noise < 1e-8) {
    refuse(key, fmt::format("is {}; it must lie in [1e-08, 1e+08], or be 0 with debug", noise));
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
        refuse(fmt::format("{}.noise_multiplier", name),
               fmt::format("is {}; the mode meet_exactly_at_target_steps decides the noise itself",
                           *phase->noise_multiplier));
      }
    }
    if (phase->clip_norm && c.clip_norm_adaptive) {
      refuse(fmt::format("{}.clip_norm", name),
             fmt::format("is {}; the bound is adaptive and follows the norms", *phase->clip_norm));
    }
  }
  if (c.noise_family == NoiseFamily::kLaplace) {
    if (c.clip_ghost || c.fused_kernel) {
      refuse("noise.family",
             fmt::format("is laplace, which bounds the L1 norm of each record's gradient; {} has "
                         "none: set clipping.ghost and fused_kernel to false, or take gaussian",
                         c.clip_ghost ? "ghost clipping" : "the fused kernel"));
    }
    if (c.compression != Compression::kNone) {
      refuse("noise.compression", fmt::format("is {}; with noise.family laplace it must be none",
                                              spelling(c.compression)));
    }
  }
  if (has_grid(c.noise_family) && !c.noise_discrete) {
    refuse("noise.family",
           fmt::format("is {}; give noise.discrete, its grid step", spelling(c.noise_family)));
  }
  if (!has_grid(c.noise_family) && c.noise_discrete) {
    refuse("noise.discrete", fmt::format("is {}; noise.family {} has no grid: take "
                                         "rounded_gaussian, or leave noise.discrete out",
                                         *c.noise_discrete, spelling(c.noise_family)));
  }
  int exponent = 0;
  if (c.noise_discrete && std::frexp(*c.noise_discrete, &exponent) != 0.5) {
    refuse("noise.discrete",
           fmt::format("is {}; sums are exact only on a grid that is a power of two, such as {}",
                       *c.noise_discrete, std::ldexp(1.0, exponent)));
  }
  if (has_grid(c.noise_family) && (c.clip_ghost || c.fused_kernel)) {
    refuse("noise.family", fmt::format("is {}; {} has no gradient per record to round to the grid",
                                       spelling(c.noise_family),
                                       c.clip_ghost ? "ghost clipping" : "the fused kernel"));
  }
  if (c.compression != Compression::kNone && (c.clip_ghost || c.fused_kernel)) {
    refuse(
        "noise.compression",
        fmt::format("is {}, which cuts the gradient of each record, and {} has none; set "
                    "clipping.ghost and fused_kernel to false, or take none",
                    spelling(c.compression), c.clip_ghost ? "ghost clipping" : "the fused kernel"));
  }
  if (c.compression == Compression::kNone && c.compression_keep != 1) {
    refuse("noise.compression_keep",
           fmt::format("is {}, but noise.compression is none; name a compression",
                       c.compression_keep));
  }
  if (c.noise_seed_per_step && c.target_steps.value_or(0) > kMostCountedSteps) {
    refuse("target_steps",
           fmt::format("is {}; noise_seed_per_step counts at most 2^24 steps", *c.target_steps));
  }
}

void check_clipping(const DpConfig& c) {
  if (!has_several_parts(c.clip_strategy) && c.clip_norm_map) {
    refuse("clip_norm_map",
           fmt::format("has bounds by name, but the strategy {} has one bound; take per_layer, "
                       "per_group, per_tensor or hybrid, or give clipping.norm",
                       spelling(c.clip_strategy)));
  }
  if ((c.privacy_allocation == AllocationMode::kCustom) != c.sigma_map.has_value()) {
    if (c.sigma_map) {
      refuse("sigma_map", fmt::format("is given, but privacy_allocation is {}; take custom",
                                      spelling(c.privacy_allocation)));
    }
    refuse("privacy_allocation", "is custom; give sigma_map, the noise multipliers by name");
  }
  if (c.adaptive_accounting == AdaptiveAccounting::kHeuristic) {
    if (c.regulated) {
      refuse("privacy.adaptive_accounting",
             "is heuristic, which regulated refuses; take conservative");
    }
    if (!c.allow_nonprivate_adaptation) {
      refuse("privacy.adaptive_accounting",
             "is heuristic: the bound would follow private norms without being paid for; take "
             "conservative, or allow_nonprivate_adaptation: true to stamp the run not_private");
    }
  }
  if (!c.clip_norm_adaptive) return;
  if (c.adaptive_lower > c.adaptive_upper) {
    refuse("clipping.adaptive.lower", fmt::format("is {}, above clipping.adaptive.upper {}",
                                                  c.adaptive_lower, c.adaptive_upper));
  }
  if (c.clip_norm < c.adaptive_lower || c.clip_norm > c.adaptive_upper) {
    refuse("clipping.adaptive.initial",
           fmt::format("is {}; it must lie between the bounds {} and {}", c.clip_norm,
                       c.adaptive_lower, c.adaptive_upper));
  }
  if (c.noise_family != NoiseFamily::kGaussian) {
    refuse("clipping.norm", fmt::format("is adaptive; its counts are accounted with gaussian "
                                        "noise, and noise.family is {}",
                                        spelling(c.noise_family)));
  }
}

void check_regulated(const DpConfig& c) {
  if (!c.regulated) return;
  if (c.debug) refuse("debug", "is true, which regulated refuses");
  if (!c.secure) refuse("secure", "is false, which regulated refuses: noise needs a secret key");
  if (c.allow_nonprivate_adaptation) {
    refuse("allow_nonprivate_adaptation", "is true, which regulated refuses");
  }
  if (c.clip_ghost && !c.ghost_bound_hash) {
    refuse("ghost_bound_hash",
           "is missing; regulated takes ghost clipping only with the SHA-256 "
           "of its audited bound");
  }
}

void check_schedule(const DpConfig& c, std::uint64_t t) {
  const bool follows_budget = c.mode == ScheduleMode::kMeetExactly ||
                              c.mode == ScheduleMode::kBudgetAdaptive ||
                              c.mode == ScheduleMode::kDynamicProjection;
  if (follows_budget && !c.target_steps) {
    refuse("mode", fmt::format("is {}; give target_steps, over which it divides the budget",
                               spelling(c.mode)));
  }
  if (follows_budget && t >= *c.target_steps) {
    refuse("target_steps", fmt::format("is {} and step {} is to be taken; the planned run is over",
                                       *c.target_steps, t));
  }
  const std::uint64_t warm = c.warmup.until_step.value_or(0);
  if (c.main.until_step && *c.main.until_step < warm) {
    refuse("phases.main.until_step",
           fmt::format("is {}, before the warmup ends at step {}", *c.main.until_step, warm));
  }
  if (c.noise_seed_per_step && t >= kMostCountedSteps) {
    refuse("noise_seed_per_step",
           fmt::format("counts at most 2^24 steps, and step {} is to be taken", t));
  }
  if (!is_epoch_event(c.sampling_mode)) return;
  if (c.accountant_granularity != Granularity::kPerEpoch) {
    refuse("accountant_granularity",
           fmt::format("is PER_STEP; the event of {} is the whole epoch: PER_EPOCH",
                       spelling(c.sampling_mode)));
  }
  const std::uint64_t batches = batches_per_epoch(c);
  const auto whole = [&](std::string_view key, const std::optional<std::uint64_t>& steps) {
    if (steps && *steps % batches != 0) {
      refuse(key, fmt::format("is {}; with {} batches an epoch it must be a multiple of {}", *steps,
                              batches, batches));
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
      refuse("accountant",
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
    refuse("adjacency",
           "is add_remove; removing a record would move all later ones of SEQUENTIAL_V1 to other "
           "batches: take zero_out, or full batches");
  }
  if (!c.effective_batch_size) {
    refuse("effective_batch_size",
           "is missing; give it, the public number that divides the sum, or declared_size");
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
