#pragma once

#include "discreet/mechanism/noise/sensitivity.h"
#include "discreet/mechanism/step/apply.h"

namespace discreet::mechanism {

bool adapts_bounds(const DpConfig& dp) noexcept;

// The part of a mechanism that is constant during a run.
struct Mechanism::Fixed {
  Config config;
  ModelLayout layout;
  MechanismStreams streams;
  Digest token;
  int threads;
  std::size_t most_positions;
  SamplingPlan sampling;
  accounting::Sampling accounted_sampling;  // with the ghost adjustment of the rate
  double batch;                             // B_eff
  std::uint64_t most_records;
  double delta;  // target_delta minus the charges for noise sampler and batch bound
  std::vector<std::string> not_private;
  std::vector<PriorRelease> before;
  Digest config_hash = {};  // of the original configuration
  std::optional<Router> router = {};
  std::optional<PeftStats> peft = {};
  std::optional<RoutingStats> routing = {};
  std::size_t binary32_records = ClipOptions().binary32_records;

  const DpConfig& dp() const noexcept { return config.privacy; }
  bool adapts() const noexcept { return adapts_bounds(dp()); }
  bool has_grid() const noexcept { return discreet::has_grid(dp().noise_family); }
  bool is_laplace() const noexcept { return dp().noise_family == NoiseFamily::kLaplace; }
  bool has_no_noise() const noexcept;  // debug with multiplier 0
  // The steps that are composed at once: those of an epoch if that is the event or the granularity.
  std::uint64_t steps_reserved() const noexcept;
  ClipOptions clip_options() const noexcept;
  ClipMethod clip_method() const noexcept;
  bool takes_passes() const noexcept;
  AdaptiveClipOptions adaptive_options() const;
  // The number of counts released in the same step as the gradient, and their sigma_b.
  std::optional<accounting::Adaptation> counts(std::size_t parts) const;
  // The number of draws that make up the noise of a step.
  std::uint64_t noise_slots() const noexcept;
  // A release of noise multiplier sigma, in a run with discrete noise on one part of bound C.
  accounting::Mechanism discrete_mechanism(double sigma, double clip) const;
  // The step's accounting event at base multiplier sigma > 0.
  accounting::Event event(const Allocation& allocation, double sigma) const;
};

struct Mechanism::Accumulation {
  // spare: a sum that is no longer needed; its memory is reused if it matches the layout.
  Accumulation(const ModelLayout& layout, std::size_t parts, std::optional<GradientSum> spare = {})
      : sum(spare && spare->is_of(layout) ? std::move(*spare).emptied() : GradientSum(layout)),
        statistics(parts),
        counts{std::vector<double>(parts), std::vector<double>(parts)} {}
  GradientSum sum;  // of the layout of the step's coordinates
  ClipStatistics statistics;
  NormCounts counts;
  std::uint64_t microbatches = 0;
};

// What step t trains and how it is clipped: a function of configuration, t and releases.
struct Prepared {
  std::optional<CoordinateMask> mask;  // empty without compression: every coordinate
  ModelLayout layout{{}};              // of the mask's coordinates
  Allocation allocation;               // for that layout
};

// What the metrics say of an event beside its epsilon. Each number costs two accountants.
struct EventFacts {
  std::uint64_t events = 0;  // so far
  double sigma = 0;
  std::optional<double> delta_eps, amplification_factor;
};

// The persistent state of the specification (I.A, section 10).
struct Mechanism::State {
  std::uint64_t t = 0;
  std::uint64_t t_micro = 0;         // microbatches of all steps
  std::uint64_t reserved_until = 0;  // steps below it are already composed
  double cumulative_epsilon = 0;     // upper end after the last step
  std::optional<double> projected;   // advisory, for the current schedule; empty: not computed yet
  std::unique_ptr<accounting::Accountant> accountant;
  NoiseState noise;
  std::string lineage;      // name of the noise stream after a re-execution
  std::uint64_t again = 0;  // steps charged for a re-execution
  std::optional<AdaptiveClipState> clip_norms;
  std::optional<GradientSum> magnitudes;  // topk_dp: averages of released magnitudes
  Digest sampling_rate_chain{};
  Digest sigma_map_chain{};
  // The event as which the steps below reserved_until were composed; it must not change.
  std::optional<accounting::Event> reserved;
  std::optional<Scheduler> scheduler;  // empty without privacy or noise
  // Not saved, because they follow from the rest.
  Prepared now;                             // for step t
  accounting::EpsilonBound spent{};         // of the accountant
  std::optional<random::Generator> stream;  // of the lineage
  std::optional<Accumulation> accumulation;
  std::optional<Accumulation> elsewhere;  // not saved: of take_norms(), without a sum
  EventFacts last_event;                  // not saved: kept, because most events repeat

  explicit State(const Fixed& fixed);
};

// The maximum number of steps of a run. delta is charged for twice as many, because steps that are
// executed again count too.
std::uint64_t charged_steps(const DpConfig& dp) noexcept;

// delta minus the errors at `epsilon` of the noise sampler (with `slots` draws per step) and of the
// batch bound, and minus earlier releases. At most 0: delta is used up.
double accountable_delta(const DpConfig& dp, const ModelLayout& layout,
                         const std::vector<PriorRelease>& before, std::uint64_t slots, double delta,
                         double epsilon);

// target_delta minus the same charges. Throws kInvalidDpConfig if they use it up.
double charged_delta(const DpConfig& dp, const ModelLayout& layout,
                     const std::vector<PriorRelease>& before, std::uint64_t slots);

// The largest runs of binary32 with which every class keeps its bound; fixes theta for them.
std::size_t charge_rounding(Router& router, const Mechanism::Fixed& fixed);

// Composes what the steps [lost.t, released) released under their schedule; afterwards lost.t is at
// least `released`.
void charge_again(const Mechanism::Fixed& fixed, Mechanism::State& lost, std::uint64_t released);

Prepared prepare(const Mechanism::Fixed& fixed, std::uint64_t t,
                 const std::optional<AdaptiveClipState>& clip_norms,
                 const std::optional<GradientSum>& magnitudes);

}  // namespace discreet::mechanism
