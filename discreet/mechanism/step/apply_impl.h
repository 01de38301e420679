#pragma once

#include "discreet/mechanism/noise/sensitivity.h"
#include "discreet/mechanism/step/apply.h"

namespace discreet::mechanism {

bool adapts_bounds(const DpConfig& dp) noexcept;

// What does not change during a run.
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
  double delta;  // target_delta less what noise sampler and batch bound leave out
  std::vector<std::string> not_private;
  std::vector<PriorRelease> before;
  Digest config_hash = {};  // of the configuration as it was given
  std::optional<Router> router = {};
  std::size_t binary32_records = ClipOptions().binary32_records;

  const DpConfig& dp() const noexcept { return config.privacy; }
  bool adapts() const noexcept { return adapts_bounds(dp()); }
  bool has_grid() const noexcept { return discreet::has_grid(dp().noise_family); }
  bool is_laplace() const noexcept { return dp().noise_family == NoiseFamily::kLaplace; }
  bool has_no_noise() const noexcept;  // debug with multiplier 0
  // The steps that are composed at once: an epoch's where that is the event or the granularity.
  std::uint64_t steps_reserved() const noexcept;
  ClipOptions clip_options() const noexcept;
  AdaptiveClipOptions adaptive_options() const;
  // How many counts are released beside the gradient, and their sigma_b.
  std::optional<accounting::Adaptation> counts(std::size_t parts) const;
  // In how many draws the noise of a step is made.
  std::uint64_t noise_slots() const noexcept;
  // Of a release of noise multiplier sigma, in a run with discrete noise on one part of bound C.
  accounting::Mechanism discrete_mechanism(double sigma, double clip) const;
  // The step's accounting event at base multiplier sigma > 0.
  accounting::Event event(const Allocation& allocation, double sigma) const;
};

struct Mechanism::Accumulation {
  // spare: a sum that is not needed any more; its memory is used again if it is of the layout.
  Accumulation(const ModelLayout& layout, std::size_t parts, std::optional<GradientSum> spare = {})
      : sum(spare && spare->is_of(layout) ? std::move(*spare).emptied() : GradientSum(layout)),
        statistics(parts),
        counts{std::vector<double>(parts), std::vector<double>(parts)} {}
  GradientSum sum;  // of the layout of the step's coordinates
  ClipStatistics statistics;
  NormCounts counts;
  std::uint64_t microbatches = 0;
};

// What step t trains and how it is clipped: a function of configuration, t and what was released.
struct Prepared {
  std::optional<CoordinateMask> mask;  // none without compression: every coordinate
  ModelLayout layout{{}};              // of the mask's coordinates
  Allocation allocation;               // for that layout
};

// The specification's persistent state (I.A, section 10).
struct Mechanism::State {
  std::uint64_t t = 0;
  std::uint64_t t_micro = 0;         // microbatches of all steps
  std::uint64_t reserved_until = 0;  // steps below it are composed already
  double cumulative_epsilon = 0;     // upper end after the last step
  std::optional<double> projected;   // advisory, of the schedule as it is; none: to be computed
  std::unique_ptr<accounting::Accountant> accountant;
  NoiseState noise;
  std::string lineage;      // names the stream of noise after a re-execution
  std::uint64_t again = 0;  // steps that were charged for a re-execution
  std::optional<AdaptiveClipState> clip_norms;
  std::optional<GradientSum> magnitudes;  // topk_dp: averages of released magnitudes
  Digest sampling_rate_chain{};
  Digest sigma_map_chain{};
  // What the steps below reserved_until were composed as; they must not become anything else.
  std::optional<accounting::Event> reserved;
  std::optional<Scheduler> scheduler;  // none without privacy or noise
  // Not saved: they follow from the rest.
  Prepared now;                             // for step t
  accounting::EpsilonBound spent{};         // of the accountant
  std::optional<random::Generator> stream;  // of the lineage
  std::optional<Accumulation> accumulation;
  std::optional<Accumulation> elsewhere;  // not saved: of take_norms(), without a sum

  explicit State(const Fixed& fixed);
};

// How many steps a run has at most. delta is charged for twice as many: those that are executed
// again count too.
std::uint64_t charged_steps(const DpConfig& dp) noexcept;

// delta less what the samplers of noise, of `slots` draws a step, and of batches leave out at
// `epsilon`, and what was released before. Not above 0: nothing is left.
double accountable_delta(const DpConfig& dp, const ModelLayout& layout,
                         const std::vector<PriorRelease>& before, std::uint64_t slots, double delta,
                         double epsilon);

// target_delta less what the samplers of noise, of `slots` draws a step, and of batches leave out,
// and what was released before. Throws kInvalidDpConfig if nothing is left.
double charged_delta(const DpConfig& dp, const ModelLayout& layout,
                     const std::vector<PriorRelease>& before, std::uint64_t slots);

// The largest runs of binary32 that leave every class its bound; theta is fixed for them.
std::size_t charge_rounding(Router& router, const Mechanism::Fixed& fixed);

// Composes what the steps [lost.t, released) released, as their schedule was; lost.t is then at
// least `released`.
void charge_again(const Mechanism::Fixed& fixed, Mechanism::State& lost, std::uint64_t released);

Prepared prepare(const Mechanism::Fixed& fixed, std::uint64_t t,
                 const std::optional<AdaptiveClipState>& clip_norms,
                 const std::optional<GradientSum>& magnitudes);

}  // namespace discreet::mechanism
