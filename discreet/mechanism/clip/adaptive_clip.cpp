#include "discreet/mechanism/clip/adaptive_clip.h"

#include <algorithm>
#include <cmath>

#include "discreet/accounting/accountant.h"
#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"

namespace discreet::mechanism {
namespace {

constexpr const char* kOperator = "BoundedPrivacyAwareAdaptiveClipNorm_v1";
constexpr double kLeastSpread = 1.0 / 1024;  // of lower: a MAD may be far below the norms
constexpr std::string_view kFormat = "adaptive_clip_v1";

bool is_positive(double x) noexcept { return std::isfinite(x) && x > 0; }

void check_positive(std::string_view what, double value) {
  if (!is_positive(value))
    invalid_config(kOperator, "{} is {}; it must be finite and positive", what, value);
}

void check(const AdaptiveClipOptions& options) {
  check_positive("effective_batch_size", options.batch);
  check_positive("clipping.adaptive.noise", options.deviation);
  check_positive("clipping.adaptive.lower", options.lower);
  check_positive("clipping.adaptive.upper", options.upper);
  if (options.lower > options.upper)
    invalid_config(kOperator,
                   "clipping.adaptive.lower {} is above clipping.adaptive.upper {}; swap them",
                   options.lower, options.upper);
  if (!std::isfinite(options.spread) || options.spread < 0)
    invalid_config(kOperator, "the number of MADs above the median is {}; it must be at least 0",
                   options.spread);
  if (!(options.learning_rate > 0 && options.learning_rate <= 1))
    invalid_config(kOperator, "the learning rate of adaptive clipping is {}; it must be in (0, 1]",
                   options.learning_rate);
  if (options.accounting != AdaptiveAccounting::kHeuristic) return;
  if (options.regulated)
    invalid_config(kOperator,
                   "privacy.adaptive_accounting heuristic uses norms without noise, which "
                   "regulated forbids; set conservative");
  if (!options.allow_nonprivate)
    invalid_config(
        kOperator,
        "privacy.adaptive_accounting heuristic uses norms without noise; set conservative, or "
        "allow_nonprivate_adaptation: true for a run that is not private");
}

// One step towards the value that half of the records are below. The step is bounded, because a
// noise far above the batch would otherwise throw the estimate to its end.
double moved(double value, double count, const AdaptiveClipOptions& options, double least) {
  const double excess = std::clamp(count / options.batch, -1.0, 1.0);
  return std::clamp(value * numerics::exp(-options.learning_rate * excess), least, options.upper);
}

std::vector<double> numbers_from(const cbor::Value& value) {
  std::vector<double> out;
  for (const cbor::Value& item : value.as_array()) {
    out.push_back(item.as_float());
    if (!is_positive(out.back()))
      malformed("AdaptiveClipState::decode", "{} is not a valid norm", out.back());
  }
  return out;
}

cbor::Value numbers_value(const std::vector<double>& numbers) {
  return cbor::array(std::vector<cbor::Value>(numbers.begin(), numbers.end()));
}

}  // namespace

AdaptiveClipOptions adaptive_clip_options(const DpConfig& config) {
  if (!config.effective_batch_size)
    invalid_config(kOperator, "adaptive clipping divides by effective_batch_size; declare it");
  AdaptiveClipOptions options;
  options.batch = static_cast<double>(*config.effective_batch_size);
  options.deviation = config.adaptive_noise;
  options.lower = config.adaptive_lower;
  options.upper = config.adaptive_upper;
  options.accounting = config.adaptive_accounting;
  options.allow_nonprivate = config.allow_nonprivate_adaptation;
  options.regulated = config.regulated;
  check(options);
  return options;
}

Bytes AdaptiveClipState::encode() const {
  return cbor::encode(cbor::map({{"format", kFormat},
                                 {"median", numbers_value(median)},
                                 {"mad", numbers_value(mad)},
                                 {"updates", updates},
                                 {"not_private", not_private}}));
}

AdaptiveClipState AdaptiveClipState::decode(ByteView bytes) {
  const cbor::Value whole = cbor::decode(bytes);
  try {
    if (whole.as_map().size() != 5 || whole.at("format").as_text() != kFormat)
      malformed("AdaptiveClipState::decode", "this is not a state of adaptive clipping");
    AdaptiveClipState state;
    state.median = numbers_from(whole.at("median"));
    state.mad = numbers_from(whole.at("mad"));
    state.updates = whole.at("updates").as_unsigned();
    state.not_private = whole.at("not_private").as_bool();
    if (state.median.size() != state.mad.size())
      malformed("AdaptiveClipState::decode", "found {} medians and {} MADs", state.median.size(),
                state.mad.size());
    return state;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kMalformed) throw;
    malformed("AdaptiveClipState::decode", "{}", error.sentence());
  }
}

AdaptiveClipState initial_state(std::span<const double> clip, const AdaptiveClipOptions& options) {
  check(options);
  AdaptiveClipState state;
  for (const double bound : clip) {
    check_positive("a clip bound", bound);
    const double held = std::clamp(bound, options.lower, options.upper);
    const double median = std::clamp(held / (1 + options.spread / 2), options.lower, options.upper);
    state.median.push_back(median);
    state.mad.push_back(std::clamp(median / 2, options.lower * kLeastSpread, options.upper));
  }
  return state;
}

std::vector<double> clip_norms(const AdaptiveClipState& state, const AdaptiveClipOptions& options) {
  check(options);
  std::vector<double> clip(state.median.size());
  for (std::size_t g = 0; g < clip.size(); ++g)
    clip[g] =
        std::clamp(state.median[g] + options.spread * state.mad[g], options.lower, options.upper);
  return clip;
}

void NormCounts::add(const NormCounts& other) {
  if (other.below.size() != below.size() || other.within.size() != within.size())
    invalid_input(kOperator, "counts of {} parts cannot be added to counts of {} parts",
                  other.below.size(), below.size());
  for (std::size_t g = 0; g < below.size(); ++g) {
    below[g] += other.below[g];
    within[g] += other.within[g];
  }
}

NormCounts count_norms(const AdaptiveClipState& state, const RecordNorms& norms) {
  const std::size_t parts = state.median.size();
  if (norms.parts != parts || norms.norms.size() != norms.records * parts ||
      norms.zeroed.size() != norms.records)
    invalid_input(kOperator, "found norms of {} parts, but {} bounds adapt", norms.parts, parts);
  NormCounts counts{std::vector<double>(parts), std::vector<double>(parts)};
  for (std::size_t i = 0; i < norms.records; ++i) {
    if (norms.zeroed[i] != 0) continue;
    for (std::size_t g = 0; g < parts; ++g) {
      const double norm = norms.norm(i, g);
      counts.below[g] += norm <= state.median[g] ? 0.5 : -0.5;
      counts.within[g] += std::fabs(norm - state.median[g]) <= state.mad[g] ? 0.5 : -0.5;
    }
  }
  return counts;
}

AdaptiveClipState adapt_clip_norms(const AdaptiveClipState& state, const NormCounts& counts,
                                   const AdaptiveClipOptions& options,
                                   std::span<const double> noise) {
  check(options);
  const std::size_t parts = state.median.size();
  const bool heuristic = options.accounting == AdaptiveAccounting::kHeuristic;
  if (counts.below.size() != parts || counts.within.size() != parts)
    invalid_input(kOperator, "found counts of {} parts, but {} adapt", counts.below.size(), parts);
  if (noise.size() != (heuristic ? 0 : 2 * parts))
    invalid_input(kOperator, "found {} noises for the {} counts of {} parts", noise.size(),
                  heuristic ? 0 : 2 * parts, parts);
  for (const double z : noise)
    if (!std::isfinite(z)) invalid_input(kOperator, "a noise is {}", z);

  AdaptiveClipState next = state;
  for (std::size_t g = 0; g < parts; ++g) {
    const double a = heuristic ? 0 : options.deviation * noise[2 * g];
    const double b = heuristic ? 0 : options.deviation * noise[2 * g + 1];
    next.median[g] = moved(state.median[g], counts.below[g] + a, options, options.lower);
    next.mad[g] = moved(state.mad[g], counts.within[g] + b, options, options.lower * kLeastSpread);
  }
  ++next.updates;
  next.not_private = state.not_private || heuristic;
  return next;
}

std::optional<accounting::Adaptation> adaptation(const AdaptiveClipOptions& options,
                                                 std::size_t parts) {
  check(options);
  if (options.accounting == AdaptiveAccounting::kHeuristic || parts == 0) return std::nullopt;
  return accounting::Adaptation{static_cast<std::uint32_t>(2 * parts), options.deviation};
}

double adaptation_cost(const accounting::Event& event, std::uint64_t steps, double delta,
                       std::string_view accountant) {
  const auto* groups = std::get_if<accounting::GaussianGroups>(&event.mechanism());
  if (groups == nullptr || !groups->adaptation) return 0;
  accounting::GaussianGroups plain = *groups;
  plain.adaptation.reset();
  const auto spent = [&](const accounting::Event& e) {
    const auto ledger = accounting::make_accountant(accountant);
    ledger->compose(e, steps);
    return ledger->epsilon(delta).epsilon.upper;
  };
  const double without =
      spent(accounting::Event(std::move(plain), event.sampling(), event.adjacency()));
  return std::max(0.0, spent(event) - without);
}

NormHistory norm_history(const AdaptiveClipState& state, const AdaptiveClipOptions& options) {
  if (state.not_private)
    invalid_config(kOperator,
                   "the norms were adapted without noise (privacy.adaptive_accounting heuristic), "
                   "so bounds and noise must not depend on them; set conservative");
  return NormHistory::from_noised_release(clip_norms(state, options));
}

}  // namespace discreet::mechanism
