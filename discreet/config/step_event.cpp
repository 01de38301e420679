#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "discreet/base/error.h"
#include "discreet/config/config_resolve.h"
#include "discreet/config/config_table.h"
#include "discreet/config/prevalidation.h"

namespace discreet {
namespace {

using namespace accounting;

constexpr std::uint64_t kMostBatches = std::uint64_t{1} << 24;

[[noreturn]] void missing(std::string_view key, std::string_view sentence) {
  invalid_config("PreValidation_v1", "{}{} is missing; {}", kPrivacySection, key, sentence);
}

double accounted_rate(const DpConfig& c) {
  if (!c.sampling_rate) {
    missing("sampling_rate", "set it, or declared_size and effective_batch_size");
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
    invalid_config(
        "PreValidation_v1",
        "{}accounting_adjustment_factor is {}; {} has no rate to adjust, so it must be 1",
        kPrivacySection, c.accounting_adjustment_factor, spelling(c.sampling_mode));
  }
  const std::uint64_t batches = batches_per_epoch(c);
  if (batches > kMostBatches) {
    invalid_config(
        "PreValidation_v1",
        "{}effective_batch_size gives {} batches per epoch; at most 2^24 can be accounted for",
        kPrivacySection, batches);
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

}  // namespace discreet
