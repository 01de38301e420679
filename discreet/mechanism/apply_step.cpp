// Steps 8 to 19 of Apply_v3: from an accumulated sum to a release that is accounted for.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <functional>

#include "discreet/mechanism/apply_impl.h"
#include "discreet/mechanism/config_table.h"
#include "discreet/mechanism/finite_impl.h"
#include "discreet/mechanism/prevalidation.h"
#include "discreet/mechanism/projection.h"
#include "discreet/numerics/parallel.h"
#include "discreet/numerics/rounding.h"
#include "discreet/numerics/sum.h"

namespace discreet::mechanism {
namespace {

using numerics::next_up;
using Fixed = Mechanism::Fixed;
using State = Mechanism::State;
using Accumulation = Mechanism::Accumulation;

constexpr const char* kOperator = "Apply_v3";
constexpr double kMagnitudeDecay = 0.9;  // topk_dp: weight of the past in the average magnitude

// An accountant with events that are taken back unless they are kept.
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

// What is decided for a step before anything is drawn.
struct Decided {
  std::optional<Scheduler> scheduler;  // after the step's review
  std::optional<double> projected;
  double sigma = 0;  // 0: no noise (not enabled, or debug)
  std::optional<accounting::Event> event;
  bool due = false;  // the event is composed with this step
  std::vector<std::string> warnings;
};

double project_final(const Fixed& fixed, const State& state, const Scheduler& scheduler) {
  return project(*state.accountant, scheduler, state.t, fixed.layout.trainable_parameters())
      .epsilon;
}

// Step 11: a projection above the target raises the noise or ends the run, as the policy says.
void guard(const Fixed& fixed, const State& state, Decided& decided) {
  const DpConfig& dp = fixed.dp();
  if (!decided.projected || !(*decided.projected > dp.target_epsilon) ||
      state.t < state.reserved_until || dp.projection_policy == ProjectionPolicy::kAdvise)
    return;
  if (dp.projection_policy == ProjectionPolicy::kAbort)
    throw Error(
        ErrorCode::kPrivacyBudgetExceeded, "DPScalingLawProjector_v1",
        fmt::format("the schedule would reach epsilon {} after {} steps, above the target {}; "
                    "projection_policy is abort",
                    *decided.projected, decided.scheduler->goal().steps, dp.target_epsilon));
  const double factor = upscale_factor(*state.accountant, *decided.scheduler, state.t);
  decided.scheduler->scale_up(state.t, factor);
  decided.sigma = sigma_at(decided.scheduler->schedule(), state.t);
  decided.projected = project_final(fixed, state, *decided.scheduler);
  decided.warnings.push_back(
      fmt::format("noise raised by a factor {} at step {}: the projection was above the target",
                  factor, state.t));
}

// Steps 9 to 11, and the event of step 15.
Decided decide(const Fixed& fixed, const State& state) {
  Decided out;
  out.scheduler = state.scheduler;
  out.projected = state.projected;
  if (!out.scheduler) return out;
  // Inside a reserved epoch sigma is what was reserved.
  const bool reserved = state.t < state.reserved_until;
  const std::uint64_t at = reserved ? state.reserved_until - fixed.steps_reserved() : state.t;
  const Schedule before = out.scheduler->schedule();
  out.sigma = reserved ? sigma_at(before, at) : out.scheduler->sigma(at, *state.accountant);
  if (out.scheduler->goal().steps != 0 &&
      (!out.projected || !(before == out.scheduler->schedule())))
    out.projected = project_final(fixed, state, *out.scheduler);
  guard(fixed, state, out);
  out.event = fixed.event(state.now.allocation, out.sigma);
  out.due = !reserved;
  if (reserved && !(*out.event == *state.reserved))
    throw Error(
        ErrorCode::kInvalidDpConfig, kOperator,
        fmt::format("step {} is not what its epoch reserved: bounds or noise changed inside "
                    "the epoch; account PER_STEP",
                    state.t));
  return out;
}

// Steps 15 and 16: composes what is due and refuses a total above the target.
accounting::EpsilonBound compose_within_budget(const Fixed& fixed, const State& state,
                                               const Decided& decided) {
  if (!decided.due) return state.spent;
  state.accountant->compose(*decided.event,
                            fixed.steps_reserved() / fixed.sampling.steps_per_event());
  const accounting::EpsilonBound after = state.accountant->epsilon(fixed.delta);
  if (after.epsilon.upper <= fixed.dp().target_epsilon) return after;
  throw Error(ErrorCode::kPrivacyBudgetExceeded, "Accountant.Update_v1",
              fmt::format("step {} would take epsilon to {}, above the target {} at delta {} ({} "
                          "spent); nothing was released",
                          state.t, after.epsilon.upper, fixed.dp().target_epsilon,
                          fixed.dp().target_delta, state.cumulative_epsilon));
}

// To the nearest numbers of the type, ties to even.
void to_dtype(std::span<double> values, ComputeDtype dtype) {
  if (dtype == ComputeDtype::kFloat32)
    for (double& v : values) v = static_cast<float>(v);
  if (dtype == ComputeDtype::kBfloat16)
    for (double& v : values) {
      const auto narrow = static_cast<float>(v);
      std::uint32_t bits = std::bit_cast<std::uint32_t>(narrow);
      bits += 0x7fff + (bits >> 16 & 1);
      v = std::isfinite(narrow) ? std::bit_cast<float>(bits & 0xffff0000u) : narrow;
    }
}

// out = x / divisor. By a power of two, as batches often are, the product has the same bits and
// takes a fifth of the time.
void divide(std::span<const double> x, double divisor, std::span<double> out) {
  int exponent = 0;
  if (std::frexp(divisor, &exponent) == 0.5) {
    const double inverse = 1 / divisor;
    for (std::size_t k = 0; k < x.size(); ++k) out[k] = x[k] * inverse;
  } else {
    for (std::size_t k = 0; k < x.size(); ++k) out[k] = x[k] / divisor;
  }
}

// What is released beside the noisy average, and what is known of it.
struct Drawn {
  std::vector<double> stddev;   // of the average, one per part
  std::vector<double> normals;  // standard normal numbers, one per count
  double signal = 0;            // norm of the average before noise
  NoiseState noise;
};

// Values that lie elsewhere: averages already.
template <class Real>
struct Held {
  std::span<const std::span<Real>> tensors;
  const Team* team = nullptr;
};

// Draws the noise of a step: `add` does it for one of its slots.
template <class Add>
void draw_noise(const Fixed& fixed, const State& state, const Decided& decided, double grid,
                Drawn& out, Add add) {
  const DpConfig& dp = fixed.dp();
  const Partition& parts = state.now.allocation.plan.partition;
  const accounting::GaussianGroups groups = gaussian_groups(state.now.allocation, decided.sigma);
  std::vector<double> in_unit(parts.parts());
  for (std::size_t g = 0; g < parts.parts(); ++g) {
    const double on_sum =
        next_up(groups.groups[g].noise_multiplier * state.now.allocation.plan.clip[g]);
    out.stddev[g] = next_up(on_sum / fixed.batch);
    in_unit[g] = fixed.has_grid() ? next_up(on_sum / grid) : out.stddev[g];
  }
  if (const auto counts = fixed.counts(parts.parts())) out.normals.assign(counts->counts, 0);
  const std::vector<double> ones(out.normals.size(), 1);
  NoiseRequest request;
  request.seed_per_step = dp.noise_seed_per_step;
  request.family = dp.noise_family;
  request.stddev = in_unit;
  request.scalars = out.normals;
  request.scalar_stddev = ones;
  request.threads = fixed.threads;
  // Of several slots each has the same share of the variance; the sum has all of it, and more by
  // rounding.
  const std::uint64_t slots = fixed.noise_slots();
  if (slots > 1) {
    const double root = numerics::next_down(std::sqrt(static_cast<double>(slots)));
    for (double& stddev : in_unit) stddev = next_up(stddev / root);
  }
  const random::Generator& generator = state.stream ? *state.stream : fixed.streams.noise;
  for (std::uint64_t slot = 0; slot < slots; ++slot) {
    request.step = state.t * slots + slot;
    out.noise = add(request, generator, slot == 0, slot + 1 == slots);
  }
}

template <class TensorOf>
[[noreturn]] void refuse_infinite(const Fixed& fixed, const State& state, TensorOf tensor_of) {
  for (std::size_t i = 0; i < state.now.layout.size(); ++i)
    if (!all_finite(tensor_of(i)))
      throw Error(ErrorCode::kInvalidGradient, kOperator,
                  fmt::format("the noisy gradient of {} is not finite in {}; nothing was released",
                              state.now.layout.tensors()[i].name,
                              spelling(fixed.config.run.compute_dtype)));
  throw Error(ErrorCode::kInvalidGradient, kOperator,
              "the noisy gradient changed while it was read");
}

// Steps 8, 9b, 13 and 14, in one pass over the sum: makes `values` the noisy average. `account`
// depends on none of it and is done by one thread meanwhile.
Drawn draw(const Fixed& fixed, const State& state, const GradientSum& sum, GradientSum& values,
           const Decided& decided, const std::function<void()>& account) {
  const DpConfig& dp = fixed.dp();
  const Partition& parts = state.now.allocation.plan.partition;
  Drawn out{std::vector<double>(parts.parts()), {}, 0, state.noise};
  // Discrete noise is added to whole numbers, before anything is divided.
  const bool whole = dp.enabled && fixed.has_grid();
  const double grid = whole ? *dp.noise_discrete : 1;
  numerics::PiecewiseNorm norm(sum.values().size());
  const auto before = [&](std::size_t begin, std::span<double> piece) {
    const double* from = sum.values().data() + begin;
    divide({from, piece.size()}, whole ? 1 : fixed.batch, piece);
    norm.add(begin, piece);
  };
  std::atomic<bool> finite = true;
  const auto after = [&](std::size_t, std::span<double> piece) {
    if (whole)
      for (double& v : piece) v = v * grid / fixed.batch;
    to_dtype(piece, fixed.config.run.compute_dtype);
    if (!all_finite(piece)) finite = false;
  };
  if (decided.sigma > 0) {
    draw_noise(
        fixed, state, decided, grid, out,
        [&](NoiseRequest& request, const random::Generator& generator, bool first, bool last) {
          request.before = nullptr;
          request.meanwhile = nullptr;
          if (first) {
            request.before = before;
            request.meanwhile = account;
          }
          if (last) request.after = after;
          return generate_noise(state.now.layout, parts, request, generator, out.noise, values);
        });
  } else {
    account();
    const std::span<double> all = values.values();
    numerics::parallel_for(all.size(), fixed.threads, [&](std::size_t begin, std::size_t end) {
      constexpr std::size_t kPiece = 4096;
      for (; begin < end; begin += kPiece) {
        const auto piece = all.subspan(begin, std::min(kPiece, end - begin));
        before(begin, piece);
        after(begin, piece);
      }
    });
  }
  out.signal = norm.value() * (whole ? grid / fixed.batch : 1);
  if (!finite)
    refuse_infinite(fixed, state, [&](std::size_t i) { return std::as_const(values).tensor(i); });
  return out;
}

// The same for averages that lie elsewhere.
template <class Real>
Drawn draw(const Fixed& fixed, const State& state, Held<Real>& held, const Decided& decided) {
  const Partition& parts = state.now.allocation.plan.partition;
  Drawn out{std::vector<double>(parts.parts()), {}, 0, state.noise};
  double square = 0;
  if (decided.sigma > 0) {
    draw_noise(fixed, state, decided, 1, out,
               [&](NoiseRequest& request, const random::Generator& generator, bool first, bool) {
                 request.team = held.team;
                 request.square = first ? &square : nullptr;
                 return generate_noise(state.now.layout, parts, request, generator, out.noise,
                                       held.tensors);
               });
  } else {
    for (const std::span<const Real> values : held.tensors) {
      const double norm = numerics::norm_l2(values, fixed.threads);
      square += norm * norm;
    }
  }
  out.signal = std::sqrt(square);
  // Values and noise of such size cannot overflow binary32: no need to look at each.
  if (out.signal < 1e30 && std::ranges::all_of(out.stddev, [](double s) { return s < 1e30; }))
    return out;
  if (!std::ranges::all_of(held.tensors, [](std::span<const Real> v) { return all_finite(v); }))
    refuse_infinite(fixed, state,
                    [&](std::size_t i) { return std::span<const Real>(held.tensors[i]); });
  return out;
}

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
  out.accountant_type_used = state.accountant->name();
  out.privacy_allocation_mode = spelling(fixed.dp().privacy_allocation);
  out.zeroed_records = statistics.zeroed();
  return out;
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

void charge_again(const Fixed& fixed, State& lost, std::uint64_t released) {
  if (!lost.scheduler) return;
  const std::uint64_t events = fixed.steps_reserved() / fixed.sampling.steps_per_event();
  // An epoch that is begun again is one more epoch of fresh batches.
  if (lost.t < lost.reserved_until) lost.accountant->compose(*lost.reserved, events);
  lost.t = std::max(lost.t, lost.reserved_until);
  while (lost.t < released) {
    lost.now = prepare(fixed, lost.t, lost.clip_norms, lost.magnitudes);
    Decided decided = decide(fixed, lost);
    lost.accountant->compose(*decided.event, events);
    lost.scheduler = std::move(decided.scheduler);
    lost.projected = decided.projected;
    lost.t = lost.reserved_until = lost.t + fixed.steps_reserved();
    // Which coordinates a mask kept does not matter to the event, only how many.
    if (fixed.dp().compression == Compression::kTopkDp && !lost.magnitudes)
      lost.magnitudes.emplace(fixed.layout);
  }
  lost.spent = lost.accountant->epsilon(fixed.delta);
}

template <class Values>
StepResult Mechanism::release(const Accumulation& accumulation, Values& values) {
  const Fixed& fixed = *fixed_;
  const DpConfig& dp = fixed.dp();
  State& state = *state_;
  // Steps 1 to 4 are in the state: validated, resolved, allocated for this t. What depends on t:
  prevalidate(dp, state.t);
  const std::uint64_t planned = charged_steps(dp);
  if (dp.enabled && (state.t >= planned || state.t + state.again >= 2 * planned))
    throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                fmt::format("step {} is to be taken after {} that were executed again; delta is "
                            "charged for {} planned steps: plan more target_steps",
                            state.t, state.again, planned));
  if (accumulation.microbatches != dp.gradient_accumulation_steps)
    throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                fmt::format("{} of {} microbatches are in; call accumulate for the rest",
                            accumulation.microbatches, dp.gradient_accumulation_steps));

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

  // The next state, whole before any of it is taken over.
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
  if (state.accumulation) reuse(std::move(state.accumulation->sum));
  state.accumulation.reset();
  state.elsewhere.reset();
  ++state.t;

  const double warn = dp.target_epsilon * (1 - dp.safety_budget_reserve);
  result.budget.after = {after.epsilon.lower, state.cumulative_epsilon};
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
  result.replay = replay();
  return result;
}

template StepResult Mechanism::release(const Accumulation&, GradientSum&);

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
            numerics::next_down(plan.clip[g] / next_up(norms.norm(i, g) + *stability));
  into.statistics.add(norms);
  if (state_->clip_norms) into.counts.add(count_norms(*state_->clip_norms, norms));
  if (first) state_->elsewhere.emplace(std::move(*first));
}

StepResult Mechanism::release_into(const HeldGradients& averages, const Team* team) {
  if (!state_->elsewhere)
    throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                "no norms were taken; call take_norms for every piece of the step first");
  const auto run = [&](const auto& tensors) {
    using Real = typename std::remove_cvref_t<decltype(tensors)>::value_type::element_type;
    if (std::is_same_v<Real, double> !=
        (fixed_->config.run.compute_dtype == ComputeDtype::kFloat64))
      throw Error(ErrorCode::kInvalidGradient, kOperator,
                  fmt::format("run.compute_dtype is {}; give gradients of that precision",
                              spelling(fixed_->config.run.compute_dtype)));
    if (tensors.size() != fixed_->layout.size())
      throw Error(ErrorCode::kInvalidGradient, kOperator,
                  fmt::format("gradients of {} tensors for a layout of {}", tensors.size(),
                              fixed_->layout.size()));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& tensor = fixed_->layout.tensors()[i];
      if (tensors[i].size() != (tensor.is_private() ? fixed_->layout.elements(i) : 0))
        throw Error(
            ErrorCode::kInvalidGradient, kOperator,
            fmt::format("the gradient of {} has {} elements", tensor.name, tensors[i].size()));
    }
    Accumulation accumulation = *state_->elsewhere;
    accumulation.microbatches = 1;
    Held<Real> held{tensors, team};
    StepResult result = release(accumulation, held);
    ++state_->t_micro;
    return result;
  };
  return std::visit(run, averages);
}

}  // namespace discreet::mechanism
