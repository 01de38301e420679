#include "discreet/mechanism/apply.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "discreet/mechanism/apply_impl.h"
#include "discreet/mechanism/clip_rows.h"
#include "discreet/mechanism/config_resolve.h"
#include "discreet/mechanism/config_table.h"
#include "discreet/mechanism/ghost.h"
#include "discreet/mechanism/noise.h"
#include "discreet/mechanism/prevalidation.h"
#include "discreet/mechanism/projection.h"
#include "discreet/numerics/elementary.h"
#include "discreet/numerics/rounding.h"
#include "discreet/numerics/sum.h"

namespace discreet::mechanism {
namespace {

using numerics::next_down;
using numerics::next_up;

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

bool adapts_bounds(const DpConfig& dp) noexcept {
  return dp.clip_strategy == ClipStrategy::kAdaptive || dp.clip_norm_adaptive;
}

double charged_delta(const DpConfig& dp, const ModelLayout& layout,
                     const std::vector<PriorRelease>& before, std::uint64_t slots) {
  const std::uint64_t steps = 2 * charged_steps(dp);
  // Counts are Gaussian whatever the family: at most three for each part, and one.
  const bool counts = adapts_bounds(dp) || dp.metrics_release == MetricsRelease::kDp;
  const double tail =
      next_up(sampler_delta(dp.noise_family, layout.private_parameters(), steps * slots,
                            dp.target_epsilon) +
              sampler_delta(NoiseFamily::kGaussian, counts ? 3 * layout.size() + 1 : 0, steps,
                            dp.target_epsilon));
  const double both = 1 + numerics::exp(std::min(dp.target_epsilon, 700.0));
  const double batches = numerics::round_up(static_cast<double>(steps) * 0x1p-144 * both, 4);
  double delta = next_down(next_down(dp.target_delta - tail) - batches);
  for (const PriorRelease& release : before)
    delta = next_down(
        delta - sampler_delta(NoiseFamily::kGaussian, release.coordinates, 1, dp.target_epsilon));
  if (!(delta > 0))
    throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                fmt::format("target_delta {} is below what {} steps of noise on {} coordinates "
                            "leave out at target_epsilon {} ({}); take a smaller target_epsilon, "
                            "fewer target_steps, or a discrete noise family",
                            dp.target_delta, steps, layout.private_parameters(), dp.target_epsilon,
                            tail + batches));
  return delta;
}

std::uint64_t slots_of(Injection injection, const DpConfig& dp, std::uint64_t most_records) {
  switch (injection) {
    case Injection::kPerStep: return 1;
    case Injection::kPerMicrobatch: return dp.gradient_accumulation_steps;
    case Injection::kPerSample: return most_records;
  }
  return 1;
}

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

// ---------------------------------------------------------------- what is fixed

std::uint64_t charged_steps(const DpConfig& dp) noexcept {
  return dp.target_steps.value_or(std::uint64_t{1} << 24);
}

bool Mechanism::Fixed::adapts() const noexcept { return adapts_bounds(dp()); }

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

std::uint64_t Mechanism::Fixed::noise_slots() const noexcept {
  return router ? slots_of(router->routes().injection, dp(), most_records) : 1;
}

AdaptiveClipOptions Mechanism::Fixed::adaptive_options() const {
  return adaptive_clip_options(dp());
}

std::optional<accounting::Adaptation> Mechanism::Fixed::counts(std::size_t parts) const {
  std::uint32_t counts = 0;
  if (adapts() && dp().adaptive_accounting == AdaptiveAccounting::kConservative)
    counts += static_cast<std::uint32_t>(2 * parts);
  if (dp().metrics_release == MetricsRelease::kDp) counts += static_cast<std::uint32_t>(parts + 1);
  if (counts == 0) return std::nullopt;
  return accounting::Adaptation{counts, dp().adaptive_noise};
}

accounting::Event Mechanism::Fixed::event(const Allocation& allocation, double sigma) const {
  const std::size_t parts = allocation.plan.partition.parts();
  // Every class of a routed run has at least this multiplier, rounding included.
  if (router && !has_grid() && !is_laplace())
    return {accounting::Gaussian{sigma}, accounted_sampling, dp().adjacency};
  accounting::GaussianGroups groups = accounted_groups(allocation, sigma, counts(parts));
  const bool one_bound = parts == 1 && !groups.adaptation;
  const auto require_one_bound = [&] {
    if (!one_bound)
      throw Error(
          ErrorCode::kInvalidDpConfig, kOperator,
          fmt::format("{} noise is accounted for one clip bound without counts beside it; take "
                      "a flat clipping.strategy, or {}",
                      spelling(dp().noise_family), has_grid() ? "rounded_gaussian" : "gaussian"));
  };
  if (is_laplace()) {
    require_one_bound();
    const double inflation = next_up(1 + summation_charge(most_records));
    const double multiplier =
        router ? sigma : next_down(groups.groups[0].noise_multiplier / inflation);
    return {accounting::Laplace{laplace_scale(multiplier)}, accounted_sampling, dp().adjacency};
  }
  if (!has_grid()) {
    const double inflation =
        dp().clip_ghost || dp().fused_kernel
            ? sensitivity_factor(most_records, most_positions, clip_options(), Slots::kShifted)
            : next_up(1 + summation_charge(most_records));
    for (accounting::Group& group : groups.groups) {
      group.noise_multiplier = next_down(group.noise_multiplier / inflation);
      // Without a flat bound the unit of C_g means nothing; one that adapts must not make the same
      // step another event.
      if (!groups.flat_clip) group.clip = 1;
    }
    return {groups, accounted_sampling, dp().adjacency};
  }
  for (const double clip : allocation.plan.clip)
    if (static_cast<double>(most_records) * (clip / *dp().noise_discrete) > 0x1p53)
      throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                  fmt::format("noise.discrete is {}: the sum of up to {} records of norm {} is not "
                              "exact in so fine steps; take a coarser grid",
                              *dp().noise_discrete, most_records, clip));
  const bool rounded = dp().noise_family == NoiseFamily::kRoundedGaussian;
  if (!rounded) require_one_bound();
  const double multiplier = router    ? sigma
                            : rounded ? accounting::effective_noise_multiplier(groups)
                                      : groups.groups[0].noise_multiplier;
  return {discrete_mechanism(multiplier, allocation.plan.clip[0]), accounted_sampling,
          dp().adjacency};
}

accounting::Mechanism Mechanism::Fixed::discrete_mechanism(double sigma, double bound) const {
  if (dp().noise_family == NoiseFamily::kRoundedGaussian) return accounting::RoundedGaussian{sigma};
  const double clip = next_up(bound / *dp().noise_discrete);  // in grid steps
  if (dp().noise_family == NoiseFamily::kDiscreteGaussian)
    return accounting::DiscreteGaussian{sigma, clip};
  const double square = next_up(clip * clip);
  const double dimension = static_cast<double>(layout.private_parameters());
  const double stddev = next_down(sigma * next_down(bound / *dp().noise_discrete));
  // A vector of whole numbers has |x| <= x^2, hence L1 norm at most the squared L2 norm.
  return accounting::Skellam{next_down(stddev * stddev),
                             std::min(square, next_up(next_up(std::sqrt(dimension)) * clip)), clip,
                             clip};
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
  out.allocation = allocate_budget(
      dp, out.layout, analyze_sensitivity(dp, out.layout, history ? &*history : nullptr));
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
      throw Error(ErrorCode::kPrivacyBudgetExceeded, kOperator,
                  fmt::format("what is released before the first step spends epsilon {}, above the "
                              "target {} at delta {}; give it more noise",
                              cumulative_epsilon, dp.target_epsilon, dp.target_delta));
  }
  if (dp.enabled && fixed.adapts()) {
    const Allocation first =
        allocate_budget(dp, fixed.layout, analyze_sensitivity(dp, fixed.layout));
    clip_norms = initial_state(first.plan.clip, fixed.adaptive_options());
  }
  now = prepare(fixed, t, clip_norms, magnitudes);
  if (!dp.enabled || fixed.has_no_noise()) return;
  fixed.event(now.allocation, 1);  // refuses what cannot be accounted before anything is clipped
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

namespace {

// What a class gives of its bound to the rounding of sums, at most; beyond it sums are made in
// smaller runs of binary32.
constexpr double kMostTheta = 0x1p-6;

// The largest runs of binary32 that leave every class its bound; theta is fixed for them.
std::size_t charge_rounding(Router& router, const Mechanism::Fixed& fixed) {
  if (fixed.has_grid()) return fixed.binary32_records;
  const DpConfig& dp = fixed.dp();
  if (!dp.clip_ghost && !dp.fused_kernel) {
    if (router.charge(summation_charge(fixed.most_records), kMostTheta))
      return fixed.binary32_records;
  } else {
    ClipOptions options = fixed.clip_options();
    for (;; options.binary32_records /= 2) {
      const double factor =
          sensitivity_factor(fixed.most_records, fixed.most_positions, options, Slots::kFixed);
      if (router.charge(next_up(factor - 1), kMostTheta)) return options.binary32_records;
      if (options.binary32_records == 0) break;
    }
  }
  throw Error(ErrorCode::kInvalidDpConfig, "Router",
              fmt::format("the rounding of a sum of {} records with the widest bound is more than "
                          "1/64 of the strictest class's bound; make the bounds of classes less "
                          "unequal, the batches smaller, or take a discrete noise family",
                          fixed.most_records));
}

}  // namespace

Mechanism::Mechanism(const Config& given, const ModelLayout& layout, MechanismStreams streams,
                     const Digest& token, int threads, std::size_t most_positions,
                     std::vector<PriorRelease> before, std::optional<Routes> routes) {
  Config resolved = given;
  prevalidate(resolved.privacy, 0);
  if (resolved.privacy.secure && !streams.noise.is_secure())
    throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                "secure is true, but the noise would come from a generator that is not "
                "cryptographic; take mechanism_streams, or set secure: false");
  ModelLayout marked =
      layout.with_public(resolved.privacy.public_modules, resolved.privacy.public_groups);
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
      sampling_of(resolved.privacy), batch, most, delta, not_private_reasons(resolved.privacy),
      std::move(before), mechanism::config_hash(given)});
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
const Router* Mechanism::router() const noexcept {
  return fixed_->router ? &*fixed_->router : nullptr;
}

accounting::Mechanism Mechanism::use_of(std::size_t c) const {
  if (!fixed_->router || c >= fixed_->router->classes())
    throw Error(ErrorCode::kInvalidInput, kOperator, fmt::format("there is no class {}", c));
  const RoutePlan& plan = fixed_->router->routes().plans[c];
  if (fixed_->is_laplace())
    return accounting::Laplace{laplace_scale(fixed_->router->noise_multiplier(c))};
  if (!fixed_->has_grid()) return noise_of_use(plan);
  double bound = plan.flat_clip.value_or(plan.blocks[0].clip);
  return fixed_->discrete_mechanism(fixed_->router->noise_multiplier(c),
                                    std::min(bound, plan.blocks[0].clip));
}

accounting::EpsilonBound Mechanism::spent() const {
  return state_->accountant->epsilon(fixed_->delta);
}

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
    Accumulation first(state_->now.layout, state_->now.allocation.plan.partition.parts(), spare(),
                       fixed_->threads);
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

StepResult Mechanism::apply(std::span<const Microbatch> microbatches,
                            std::span<const std::vector<std::uint32_t>> classes) {
  if (fixed_->router ? classes.size() != microbatches.size() : !classes.empty())
    throw Error(
        ErrorCode::kInvalidInput, kOperator,
        fmt::format("classes for {} microbatches of {}", classes.size(), microbatches.size()));
  if (state_->accumulation)
    throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                "microbatches are accumulated already; call release, or apply alone");
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
    throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                "nothing is accumulated; call accumulate for every microbatch first");
  std::optional<GradientSum> values = spare();
  if (!values || !values->is_of(state_->now.layout)) values = state_->accumulation->sum.unset();
  return release(*state_->accumulation, *values);  // whatever fails, the accumulation stays
}

}  // namespace discreet::mechanism
