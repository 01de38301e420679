// Steps 8 to 19 of Apply_v3: from an accumulated sum to a release that is accounted for.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "discreet/base/error.h"
#include "discreet/config/config_table.h"
#include "discreet/config/prevalidation.h"
#include "discreet/mechanism/clip/adaptive_clip.h"
#include "discreet/mechanism/noise/projection.h"
#include "discreet/mechanism/step/amplification.h"
#include "discreet/mechanism/step/apply_step_impl.h"

namespace discreet::mechanism {
namespace {

using Fixed = Mechanism::Fixed;
using State = Mechanism::State;
using Accumulation = Mechanism::Accumulation;

constexpr const char* kOperator = "Apply_v3";
constexpr double kMagnitudeDecay = 0.9;  // topk_dp: weight of the past in the average magnitude

// An accountant with events that are removed again unless they are kept.
class Tentative {
 public:
  explicit Tentative(accounting::Accountant& accountant)
      : accountant_(accountant), before_(accountant.save()) {}
  ~Tentative() {
    if (!kept_) accountant_.restore(before_);
  }
  Tentative(const Tentative&) = delete;
  Tentative& operator=(const Tentative&) = delete;
  void keep() noexcept { kept_ = true; }

 private:
  accounting::Accountant& accountant_;
  Bytes before_;
  bool kept_ = false;
};

// Step 19.
DpMetrics measure(const Fixed& fixed, const State& state, const Accumulation& accumulation,
                  const Decided& decided, const Drawn& drawn) {
  const Partition& parts = state.now.allocation.plan.partition;
  const ClipStatistics& statistics = accumulation.statistics;
  DpMetrics out;
  out.clip_fraction = statistics.clip_fraction();
  double energy = 0;
  for (std::size_t g = 0; g < parts.parts(); ++g) {
    out.group_clip_fraction.push_back(statistics.group_clip_fraction(g));
    energy += static_cast<double>(parts.elements[g]) * drawn.stddev[g] * drawn.stddev[g];
  }
  out.noise_scale_sigma = decided.sigma;
  if (decided.event) {
    out.effective_noise_multiplier =
        accounting::gaussian_noise_multiplier(decided.event->mechanism()).value_or(decided.sigma);
    out.effective_heterogeneous_multiplier =
        fixed.router ? decided.sigma
                     : accounting::effective_noise_multiplier(
                           gaussian_groups(state.now.allocation, decided.sigma));
  }
  out.effective_accumulation_factor = accumulation.microbatches;
  out.projected_final_epsilon = decided.projected;
  out.norm_p50 = statistics.norm_p50();
  out.norm_p95 = statistics.norm_p95();
  out.norm_max = statistics.norm_max();
  out.gradient_snr = drawn.signal / std::max(std::sqrt(energy), kEpsDenom);
  out.fairness_clip_ratio = statistics.fairness_clip_ratio();
  out.scaling_law_confidence = decided.scheduler ? confidence(*decided.scheduler, state.t) : 1;
  out.peft_noise_reduction_factor = peft_noise_reduction_factor(fixed.layout);
  out.accountant_type_used = state.accountant->bounded_by();
  out.privacy_allocation_mode = spelling(fixed.dp().privacy_allocation);
  out.zeroed_records = statistics.zeroed();
  out.records = statistics.records();
  return out;
}

// What adaptation and shuffling did to the step's event, as information.
EventFacts facts_of(const Fixed& fixed, const State& state, const Decided& decided) {
  const DpConfig& dp = fixed.dp();
  EventFacts out{state.t / fixed.sampling.steps_per_event() + 1, decided.sigma, {}, {}};
  if (!decided.event) return out;
  const EventFacts& last = state.last_event;
  const bool same_noise = out.sigma == last.sigma;
  if (same_noise && out.events == last.events) return last;
  try {
    if (fixed.adapts())
      out.delta_eps =
          adaptation_cost(*decided.event, out.events, fixed.delta, spelling(dp.accountant));
    if (subsampling_of(fixed.sampling.mode) == Subsampling::kShuffleWithoutReplacement)
      out.amplification_factor = same_noise && last.amplification_factor
                                     ? last.amplification_factor
                                     : amplification_factor(fixed.sampling, out.sigma, fixed.delta);
  } catch (const Error&) {  // a number for information must not end a run
  }
  return out;
}

// What the result says of the budget after the step.
void state_budget(const Fixed& fixed, const State& state, StepResult& result) {
  const DpConfig& dp = fixed.dp();
  const double warn = dp.target_epsilon * (1 - dp.safety_budget_reserve);
  result.budget.after = {state.spent.epsilon.lower, state.cumulative_epsilon};
  result.budget.target = dp.target_epsilon;
  result.budget.delta = dp.target_delta;
  result.budget.adjacency = dp.adjacency;
  result.budget.past_warning = dp.enabled && state.cumulative_epsilon > warn;
  if (result.budget.past_warning)
    result.warnings.push_back(
        fmt::format("epsilon {} is past {}, the target {} less its safety reserve",
                    state.cumulative_epsilon, warn, dp.target_epsilon));
  result.metrics.cumulative_epsilon = state.cumulative_epsilon;
  result.metrics.privacy_budget_remaining =
      std::max(0.0, dp.target_epsilon - state.cumulative_epsilon);
  if (dp.accountant == AccountantKind::kPld)
    result.metrics.pld_epsilon_tight = state.cumulative_epsilon;
}

// metrics.release: dp. `normals`: one for the whole and one per part.
ReleasedMetrics release_metrics(const Fixed& fixed, const ClipStatistics& statistics,
                                const DpMetrics& metrics, std::span<const double> normals) {
  const double records = static_cast<double>(statistics.records() - statistics.zeroed());
  const auto noised = [&](double fraction, double normal) {
    // A multiple of 1/2, exactly: one record moves it by 1/2 and no more.
    const double count = std::round(2 * records * (fraction - 0.5)) / 2;
    const double centred = count + fixed.dp().adaptive_noise * normal;
    return std::clamp(0.5 + centred / fixed.batch, 0.0, 1.0);
  };
  ReleasedMetrics out{noised(metrics.clip_fraction, normals[0]), {}};
  for (std::size_t g = 0; g < metrics.group_clip_fraction.size(); ++g)
    out.group_clip_fraction.push_back(noised(metrics.group_clip_fraction[g], normals[g + 1]));
  return out;
}

// topk_dp: averages of the magnitudes that were released.
GradientSum next_magnitudes(const Fixed& fixed, const State& state, const GradientSum& released) {
  GradientSum out = state.magnitudes ? *state.magnitudes : GradientSum(fixed.layout);
  for (std::size_t i = 0; i < fixed.layout.size(); ++i)
    for (const std::uint64_t k : state.now.mask->kept(i)) {
      double& average = out.tensor(i)[k];
      const double seen = std::fabs(released.tensor(i)[k]);
      average = state.magnitudes ? kMagnitudeDecay * average + (1 - kMagnitudeDecay) * seen : seen;
    }
  return out;
}

Digest chained(const Digest& before, const cbor::Value& next) {
  Sha256 hash;
  hash.update(before);
  hash.update(cbor::encode(next));
  return hash.finish();
}

Digest next_sigma_chain(const State& state, double sigma) {
  std::vector<cbor::Value> sigmas;
  for (const double multiplier : state.now.allocation.multiplier)
    sigmas.push_back(multiplier * sigma);
  return chained(state.sigma_map_chain, cbor::array(std::move(sigmas)));
}

}  // namespace

void require_step(const Fixed& fixed, const State& state) {
  const DpConfig& dp = fixed.dp();
  prevalidate_step(dp, state.t);
  const std::uint64_t planned = charged_steps(dp);
  if (dp.enabled && (state.t >= planned || state.t + state.again >= 2 * planned))
    invalid_config(kOperator,
                   "step {} was requested after {} that were executed again, but delta is charged "
                   "for {} planned steps: plan more target_steps",
                   state.t, state.again, planned);
}

accounting::EpsilonBound compose_within_budget(const Fixed& fixed, const State& state,
                                               const Decided& decided) {
  if (!decided.due) return state.spent;
  state.accountant->compose(*decided.event,
                            fixed.steps_reserved() / fixed.sampling.steps_per_event());
  const accounting::EpsilonBound after = state.accountant->epsilon(fixed.delta);
  if (fixed.dp().verify_accounting) accounting::require_agreement(*state.accountant, fixed.delta);
  if (after.epsilon.upper <= fixed.dp().target_epsilon) return after;
  budget_exceeded("Accountant.Update_v1",
                  "step {} would take epsilon to {}, above the target {} at delta {} ({} spent); "
                  "nothing was released",
                  state.t, after.epsilon.upper, fixed.dp().target_epsilon, fixed.dp().target_delta,
                  state.cumulative_epsilon);
}

template <class Values>
StepResult Mechanism::release(const Accumulation& accumulation, Values& values) {
  const Fixed& fixed = *fixed_;
  const DpConfig& dp = fixed.dp();
  State& state = *state_;
  // Steps 1 to 4 are in the state: validated, resolved, allocated for this t. What depends on t:
  require_step(fixed, state);
  if (accumulation.microbatches != dp.gradient_accumulation_steps)
    invalid_config(kOperator,
                   "only {} of {} microbatches are accumulated; call accumulate for the rest",
                   accumulation.microbatches, dp.gradient_accumulation_steps);

  Decided decided = decide(fixed, state);
  Tentative tentative(*state.accountant);
  std::optional<accounting::EpsilonBound> accounted;
  const auto account = [&] { accounted = compose_within_budget(fixed, state, decided); };
  constexpr bool kIsSum = std::is_same_v<Values, GradientSum>;
  const Drawn drawn = [&] {
    if constexpr (kIsSum) return draw(fixed, state, accumulation.sum, values, decided, account);
    account();
    if constexpr (!kIsSum) return draw(fixed, state, values, decided);
  }();
  const accounting::EpsilonBound& after = accounted.value();

  StepResult result{state.t, GradientSum(ModelLayout({})), {}, {}, {}, {}, decided.warnings};
  if constexpr (kIsSum) result.gradients = std::move(values);
  if (state.now.mask) {
    GradientSum full(fixed.layout);
    scatter(*state.now.mask, result.gradients, full);
    result.gradients = std::move(full);
  }
  result.metrics = measure(fixed, state, accumulation, decided, drawn);
  const EventFacts facts = facts_of(fixed, state, decided);
  result.metrics.delta_eps = facts.delta_eps;
  result.metrics.amplification_factor = facts.amplification_factor;

  // The next state is complete before any of it is assigned.
  std::optional<AdaptiveClipState> clip_norms = state.clip_norms;
  std::span<const double> normals = drawn.normals;
  if (clip_norms &&
      (decided.sigma > 0 || dp.adaptive_accounting == AdaptiveAccounting::kHeuristic)) {
    const std::size_t used = dp.adaptive_accounting == AdaptiveAccounting::kConservative
                                 ? 2 * state.now.allocation.plan.partition.parts()
                                 : 0;
    clip_norms = adapt_clip_norms(*clip_norms, accumulation.counts, fixed.adaptive_options(),
                                  normals.first(used));
    normals = normals.subspan(used);
  }
  if (dp.metrics_release == MetricsRelease::kDp && decided.sigma > 0)
    result.released = release_metrics(fixed, accumulation.statistics, result.metrics, normals);
  std::optional<GradientSum> magnitudes = state.magnitudes;
  if (dp.enabled && dp.compression == Compression::kTopkDp)
    magnitudes = next_magnitudes(fixed, state, result.gradients);
  Prepared next = prepare(fixed, state.t + 1, clip_norms, magnitudes);
  const Digest sigma_chain = next_sigma_chain(state, decided.sigma);
  const cbor::Value rate = fixed.sampling.rate ? cbor::Value(*fixed.sampling.rate) : nullptr;
  const Digest rate_chain = chained(state.sampling_rate_chain, rate);

  // From here on nothing throws.
  tentative.keep();
  result.budget.before = {state.spent.epsilon.lower, state.cumulative_epsilon};
  if (decided.due) {
    state.reserved_until = state.t + fixed.steps_reserved();
    state.reserved = std::move(decided.event);
  }
  state.spent = after;
  state.cumulative_epsilon = std::max(state.cumulative_epsilon, after.epsilon.upper);
  state.projected = decided.projected;
  state.noise = drawn.noise;
  state.clip_norms = std::move(clip_norms);
  state.magnitudes = std::move(magnitudes);
  state.scheduler = std::move(decided.scheduler);
  state.sigma_map_chain = sigma_chain;
  state.sampling_rate_chain = rate_chain;
  state.now = std::move(next);
  state.last_event = facts;
  if (state.accumulation) reuse(std::move(state.accumulation->sum));
  state.accumulation.reset();
  state.elsewhere.reset();
  ++state.t;

  state_budget(fixed, state, result);
  result.replay = replay();
  return result;
}

template StepResult Mechanism::release(const Accumulation&, GradientSum&);

StepResult Mechanism::release_into(const HeldGradients& held, const numerics::Team* team) {
  if (!state_->elsewhere)
    invalid_config(kOperator,
                   "no norms were passed; call take_norms for every piece of the step first");
  const auto require_fit = [&](const auto& tensors) {
    if (tensors.size() != fixed_->layout.size())
      invalid_gradient(kOperator, "found gradients of {} tensors for a layout of {}",
                       tensors.size(), fixed_->layout.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& tensor = fixed_->layout.tensors()[i];
      if (tensors[i].size() != (tensor.is_private() ? fixed_->layout.elements(i) : 0))
        invalid_gradient(kOperator, "the gradient of {} has {} elements", tensor.name,
                         tensors[i].size());
    }
  };
  require_fit(held.averages);
  if (!held.rounded.empty()) require_fit(held.rounded);
  Accumulation accumulation = *state_->elsewhere;
  accumulation.microbatches = 1;
  Held values{held, team};
  StepResult result = release(accumulation, values);
  ++state_->t_micro;
  return result;
}

}  // namespace discreet::mechanism
