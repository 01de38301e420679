#include "discreet/mechanism/step/apply.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "discreet/config/config_resolve.h"
#include "discreet/config/config_table.h"
#include "discreet/config/prevalidation.h"
#include "discreet/mechanism/step/apply_impl.h"

namespace discreet::mechanism {
namespace {

constexpr const char* kOperator = "Apply_v3";

std::uint64_t most_records_of(const SamplingPlan& plan) {
  const std::uint64_t batch = plan.batch.value_or(1);
  switch (plan.mode) {
    case SamplingMode::kTruncatedPoisson: return plan.most.value_or(batch);
    case SamplingMode::kFixedSize: return batch;
    case SamplingMode::kPoisson:
    case SamplingMode::kBallsAndBins: {
      const double mean = static_cast<double>(batch);
      return static_cast<std::uint64_t>(std::ceil(mean + 20 * std::sqrt(mean) + 200));
    }
    // Parts of equal size up to one record.
    case SamplingMode::kShuffledEpoch:
    case SamplingMode::kSequential: return batch + 1;
  }
  return batch;
}

// The sampling of the events, at the rate of an expert's part: that of the batch.
accounting::Sampling at_rate(accounting::Sampling sampling, const RoutingStats* routing) {
  if (auto* coins = std::get_if<accounting::Poisson>(&sampling))
    coins->rate = effective_sampling_rate(coins->rate, routing);
  return sampling;
}

std::uint64_t slots_of(Injection injection, const DpConfig& dp, std::uint64_t most_records) {
  switch (injection) {
    case Injection::kPerStep: return 1;
    case Injection::kPerMicrobatch: return dp.gradient_accumulation_steps;
    case Injection::kPerSample: return most_records;
  }
  return 1;
}

}  // namespace

// ---------------------------------------------------------------- what is fixed

bool Mechanism::Fixed::has_no_noise() const noexcept {
  return dp().debug && dp().noise_multiplier == 0;
}

std::uint64_t Mechanism::Fixed::steps_reserved() const noexcept {
  const std::uint64_t event = sampling.steps_per_event();
  return dp().accountant_granularity == Granularity::kPerEpoch
             ? std::max(event, sampling.steps_per_epoch)
             : event;
}

ClipOptions Mechanism::Fixed::clip_options() const noexcept {
  ClipOptions options;
  options.nonfinite =
      dp().nonfinite == NonfinitePolicy::kZero ? Nonfinite::kZero : Nonfinite::kAbort;
  options.max_microbatch = dp().max_microbatch;
  options.threads = threads;
  options.binary32_records = binary32_records;
  return options;
}

ClipMethod Mechanism::Fixed::clip_method() const noexcept {
  if (!dp().enabled) return {};
  return {dp().clip_strategy, dp().fused_kernel, has_grid() ? *dp().noise_discrete : 0,
          is_laplace() ? Norm::kL1 : Norm::kL2};
}

bool Mechanism::Fixed::takes_passes() const noexcept {
  return !dp().enabled || dp().clip_ghost || dp().fused_kernel;
}

std::uint64_t Mechanism::Fixed::noise_slots() const noexcept {
  return router ? slots_of(router->routes().injection, dp(), most_records) : 1;
}

AdaptiveClipOptions Mechanism::Fixed::adaptive_options() const {
  return adaptive_clip_options(dp());
}

// ---------------------------------------------------------------- the state

Prepared prepare(const Mechanism::Fixed& fixed, std::uint64_t t,
                 const std::optional<AdaptiveClipState>& clip_norms,
                 const std::optional<GradientSum>& magnitudes) {
  const DpConfig dp = in_phase(fixed.dp(), phase_at(fixed.dp(), t));
  const bool compresses = dp.enabled && dp.compression != Compression::kNone;
  Prepared out{std::nullopt, fixed.layout, {}};
  if (compresses) {
    if (dp.compression == Compression::kSparseDp)
      out.mask = CoordinateMask::sparse(fixed.layout, dp.compression_keep, fixed.streams.masks, t);
    else if (magnitudes)
      out.mask = CoordinateMask::largest(fixed.layout, dp.compression_keep, *magnitudes);
    else
      out.mask = CoordinateMask::all(fixed.layout);
    out.layout = out.mask->reduced(fixed.layout);
  }
  ClipPlan& plan = out.allocation.plan;
  if (!dp.enabled) {
    plan.partition = partition(out.layout, Cut::kFlat);
    plan.clip.assign(plan.partition.parts(), 0x1p1000);  // clips nothing
    return out;
  }
  if (fixed.router) {
    out.allocation = fixed.router->allocation();
    return out;
  }
  std::optional<NormHistory> history;
  if (clip_norms && !clip_norms->not_private)
    history = norm_history(*clip_norms, fixed.adaptive_options());
  out.allocation =
      allocate_budget(dp, out.layout,
                      analyze_sensitivity(dp, out.layout, history ? &*history : nullptr,
                                          fixed.routing ? &*fixed.routing : nullptr));
  if (clip_norms && clip_norms->not_private)
    plan.clip = mechanism::clip_norms(*clip_norms, fixed.adaptive_options());
  if (out.layout.private_parameters() < fixed.layout.private_parameters()) {
    const double shrink = std::sqrt(dp.compression_keep);
    for (double& clip : plan.clip) clip *= shrink;
    if (plan.flat_clip) *plan.flat_clip *= shrink;
  }
  return out;
}

Mechanism::State::State(const Fixed& fixed) : now{std::nullopt, fixed.layout, {}} {
  const DpConfig& dp = fixed.dp();
  accountant = accounting::make_accountant(spelling(dp.accountant), {dp.log_space_accounting});
  if (!fixed.before.empty()) {
    for (const PriorRelease& release : fixed.before) accountant->compose(release.event);
    spent = accountant->epsilon(fixed.delta);
    cumulative_epsilon = spent.epsilon.upper;
    if (dp.enabled && !(cumulative_epsilon <= dp.target_epsilon))
      budget_exceeded(kOperator,
                      "releases before the first step spend epsilon {}, above the target {} at "
                      "delta {}; use more noise for them",
                      cumulative_epsilon, dp.target_epsilon, dp.target_delta);
  }
  if (dp.enabled && fixed.adapts()) {
    const Allocation first =
        allocate_budget(dp, fixed.layout, analyze_sensitivity(dp, fixed.layout));
    clip_norms = initial_state(first.plan.clip, fixed.adaptive_options());
  }
  now = prepare(fixed, t, clip_norms, magnitudes);
  if (!dp.enabled || fixed.has_no_noise()) return;
  fixed.event(now.allocation, 1);  // rejects what cannot be accounted before anything is clipped
  // The events of the future are those of the allocation as it is now. Where bounds adapt part by
  // part it may shift; what is composed is the event of the step itself.
  const ScheduleGoal goal{dp.target_epsilon, fixed.delta, dp.target_steps.value_or(0)};
  scheduler.emplace(
      dp.mode, base_profile(dp), goal,
      StepEvent{[&fixed, plan = now.allocation](double sigma) { return fixed.event(plan, sigma); },
                fixed.sampling.steps_per_event(), fixed.steps_reserved()});
}

// ---------------------------------------------------------------- the mechanism

MechanismStreams mechanism_streams(const DpConfig& config, const random::Key& master) {
  if (config.secure)
    return {random::Generator::secure(master.derive(random::stream::kNoise)),
            random::Generator::secure(master.derive("compression"))};
  const random::Key seed = random::Key::from_seed(config.seed);
  constexpr auto kPhilox = random::Algorithm::kPhilox4x32;
  return {random::Generator(kPhilox, seed.derive(random::stream::kNoise)),
          random::Generator(kPhilox, seed.derive("compression"))};
}

Digest kernel_replay_token(const Config& resolved, const Digest& data_commitment) {
  return sha256(cbor::encode(cbor::array(
      {canonical_bytes(resolved), ByteView(data_commitment), kAlgorithm, kSpecVersion})));
}

Mechanism::Mechanism(const Config& given, const ModelLayout& layout, MechanismStreams streams,
                     const Digest& token, int threads, std::size_t most_positions,
                     std::vector<PriorRelease> before, std::optional<Routes> routes,
                     std::optional<RoutingStats> routing) {
  Config resolved = given;
  prevalidate(resolved.privacy, 0);
  if (resolved.privacy.secure && !streams.noise.is_secure())
    invalid_config(kOperator,
                   "secure is true, but the noise generator is not cryptographic; use "
                   "mechanism_streams, or set secure: false");
  ModelLayout marked =
      layout.with_public(resolved.privacy.public_modules, resolved.privacy.public_groups);
  std::optional<PeftStats> peft;
  if (resolved.privacy.enabled && resolved.privacy.clip_strategy == ClipStrategy::kPeftTargeted) {
    PeftPlan plan = plan_peft(layout.with_public({}, resolved.privacy.public_groups), {},
                              resolved.privacy.public_modules, resolved.privacy.clip_norm);
    marked = std::move(plan.layout);
    peft = plan.stats;
  }
  std::optional<Router> router;
  if (routes) {
    resolved = routed_config(std::move(resolved), *routes, marked);
    router.emplace(std::move(*routes), marked);
    marked = router->layout();
  }
  const SamplingPlan plan = plan_sampling(resolved.privacy);
  const std::uint64_t most = most_records_of(plan);
  const std::uint64_t slots =
      router ? slots_of(router->routes().injection, resolved.privacy, most) : 1;
  const double delta = resolved.privacy.enabled
                           ? charged_delta(resolved.privacy, marked, before, slots)
                           : resolved.privacy.target_delta;
  const double batch = static_cast<double>(plan.batch.value_or(1));
  fixed_ = std::make_unique<Fixed>(Fixed{
      resolved, std::move(marked), std::move(streams), token, threads, most_positions, plan,
      at_rate(sampling_of(resolved.privacy), routing ? &*routing : nullptr), batch, most, delta,
      not_private_reasons(resolved.privacy), std::move(before), discreet::config_hash(given)});
  fixed_->peft = peft;
  fixed_->routing = std::move(routing);
  if (router) {
    fixed_->binary32_records = charge_rounding(*router, *fixed_);
    fixed_->router.emplace(std::move(*router));
  }
  state_ = std::make_unique<State>(*fixed_);
}

Mechanism::~Mechanism() = default;
Mechanism::Mechanism(Mechanism&&) noexcept = default;

std::uint64_t Mechanism::t() const noexcept { return state_->t; }
const accounting::Accountant& Mechanism::accountant() const noexcept { return *state_->accountant; }
const ModelLayout& Mechanism::layout() const noexcept { return fixed_->layout; }
const Config& Mechanism::config() const noexcept { return fixed_->config; }
const SamplingPlan& Mechanism::sampling() const noexcept { return fixed_->sampling; }
const Allocation& Mechanism::allocation() const noexcept { return state_->now.allocation; }
std::vector<SchedulePiece> Mechanism::schedule() const {
  return state_->scheduler ? state_->scheduler->schedule() : Schedule();
}
double Mechanism::noise_multiplier() const {
  if (!state_->scheduler) return 0;
  Scheduler ahead = *state_->scheduler;
  return ahead.sigma(state_->t, *state_->accountant);
}
std::uint64_t Mechanism::most_records() const noexcept { return fixed_->most_records; }
const std::vector<std::string>& Mechanism::not_private() const noexcept {
  return fixed_->not_private;
}
const std::optional<PeftStats>& Mechanism::peft_stats() const noexcept { return fixed_->peft; }
const Router* Mechanism::router() const noexcept {
  return fixed_->router ? &*fixed_->router : nullptr;
}

accounting::EpsilonBound Mechanism::spent() const {
  return state_->accountant->epsilon(fixed_->delta);
}

StepResult Mechanism::apply(std::span<const Microbatch> microbatches,
                            std::span<const std::vector<std::uint32_t>> classes) {
  if (fixed_->router ? classes.size() != microbatches.size() : !classes.empty())
    invalid_input(kOperator, "found classes for {} microbatches; expected {}", classes.size(),
                  microbatches.size());
  if (state_->accumulation)
    invalid_config(kOperator, "microbatches are already accumulated; call release, or only apply");
  Accumulation accumulation(state_->now.layout, state_->now.allocation.plan.partition.parts());
  for (std::size_t i = 0; i < microbatches.size(); ++i) {
    clip_into(microbatches[i],
              classes.empty() ? std::span<const std::uint32_t>() : std::span(classes[i]),
              accumulation);
    ++accumulation.microbatches;
  }
  GradientSum values = accumulation.sum.unset();
  StepResult result = release(accumulation, values);
  state_->t_micro += accumulation.microbatches;
  return result;
}

std::optional<GradientSum> Mechanism::spare() noexcept {
  for (std::optional<GradientSum>& kept : spares_)
    if (kept) return std::exchange(kept, std::nullopt);
  return std::nullopt;
}

void Mechanism::reuse(GradientSum released) noexcept {
  for (std::optional<GradientSum>& kept : spares_)
    if (!kept) {
      kept.emplace(std::move(released));
      return;
    }
}

StepResult Mechanism::release() {
  if (!state_->accumulation)
    invalid_config(kOperator, "nothing is accumulated; call accumulate for every microbatch first");
  std::optional<GradientSum> values = spare();
  if (!values || !values->is_of(state_->now.layout)) values = state_->accumulation->sum.unset();
  return release(*state_->accumulation, *values);  // if anything fails, the accumulation is kept
}

}  // namespace discreet::mechanism
