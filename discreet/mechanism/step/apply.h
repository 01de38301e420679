#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "discreet/accounting/accountant.h"
#include "discreet/accounting/pld.h"
#include "discreet/base/error.h"
#include "discreet/base/hash.h"
#include "discreet/config/config.h"
#include "discreet/mechanism/clip/adaptive_clip.h"
#include "discreet/mechanism/clip/clip_batch.h"
#include "discreet/mechanism/clip/clip_plan.h"
#include "discreet/mechanism/clip/clip_statistics.h"
#include "discreet/mechanism/noise/budget_allocation.h"
#include "discreet/mechanism/noise/compression.h"
#include "discreet/mechanism/noise/noise.h"
#include "discreet/mechanism/noise/schedule.h"
#include "discreet/mechanism/route/route.h"
#include "discreet/mechanism/sample/sample.h"
#include "discreet/mechanism/step/forecast.h"
#include "discreet/mechanism/step/metrics.h"

namespace discreet::mechanism {

// Proof: apply.md

// UML_OS.DifferentialPrivacy.Apply_v3, 2026-02-18.
inline constexpr std::string_view kAlgorithm = "UML_OS.DifferentialPrivacy.Apply_v3";
inline constexpr std::string_view kSpecVersion = "2026-02-18";

// The random streams of a mechanism, each derived for one purpose.
struct MechanismStreams {
  random::Generator noise;  // of stream::kNoise; secret; use a key for one run only
  random::Generator masks;  // of "compression": public
};
// Streams derived from the run's master key: AES or ChaCha if config.secure; otherwise Philox under
// the configured public seed, independent of the master key.
MechanismStreams mechanism_streams(const DpConfig& config, const random::Key& master);

// SHA-256 of the canonical resolved configuration, the commitment to the data set and the version
// of the specification.
//   data_commitment: must hide the data, as a digest with a secret salt does. Tokens appear in the
//   trace. If anyone could recompute a token for a guessed data set, they could confirm the guess.
Digest kernel_replay_token(const Config& resolved, const Digest& data_commitment);

// A release from the same records before the first step, such as private bounds of their columns.
// It is part of the run: composed first, within the budget.
struct PriorRelease {
  accounting::Event event;
  std::uint64_t coordinates = 0;  // coordinates with continuous Gaussian noise: charged to delta
  friend bool operator==(const PriorRelease&, const PriorRelease&) = default;
};

// The clipped gradients of a step that the caller holds, for instance PyTorch: one span per tensor
// of the layout, in layout order; empty for tensors that are not private.
//   averages  in: the clipped averages; out: with noise
//   rounded   empty, or as many spans of the same lengths: receives the final `averages`, rounded
//             to binary32. This is post-processing: the noise was added in binary64.
struct HeldGradients {
  std::vector<std::span<double>> averages;
  std::vector<std::span<float>> rounded;
};

// The result of one optimizer step. The event covers gradients, budget, released and warnings, or
// they follow from configuration and accountant. metrics are confidential.
struct StepResult {
  std::uint64_t t = 0;
  // The noisy average, in binary64 numbers that run.compute_dtype can represent. Only private
  // tensors have values. Empty after release_into(), which writes them in place.
  GradientSum gradients;
  UpdatedBudget budget;
  DpMetrics metrics;                        // confidential
  std::optional<ReleasedMetrics> released;  // under metrics.release: dp
  Digest replay{};                          // dp_replay_t
  std::vector<std::string> warnings;        // the soft safety warning, a raised sigma
};

// UML_OS.Error.Emit_v1: the final record of a run that failed.
struct FailureRecord {
  std::uint64_t t = 0;
  std::string failure_code;  // of 0.K
  std::string failure_operator;
  Digest dp_replay{};       // of the state before the failed step
  Digest state_fp{};        // SHA-256 of that state
  std::string diagnostics;  // the sentence; confidential: it may name a record or a batch size
  cbor::Value to_cbor() const;
};

// The mechanism with its state. It clips microbatches. Once per optimizer step it releases the
// noisy average and accounts for it, in the order of section 6 of the specification. A call that
// throws releases nothing and leaves every byte of save() unchanged.
//
// The budget is checked for the step about to be released: epsilon.upper <= target_epsilon, without
// tolerance. If the event is an epoch, or the granularity PER_EPOCH, the whole epoch is checked and
// composed at its first step, and sigma is constant within it.
//
// With enabled: false the result is the average of the input, without clipping or noise, and the
// budget does not change.
class Mechanism {
 public:
  // resolved: from resolve() and accepted by prevalidate(). layout: without marks for public
  // modules. token: kernel_replay_token(). threads: does not affect results.
  // most_positions: the maximum number of positions of a layer in backward passes (ghost, fused):
  // the length of a sequence or the pixels of a padded image; public. The rounding of sums over
  // that many positions is charged; passes with more are rejected.
  // before: earlier releases from these records; spent(), schedules, projections and the saved
  // state include them.
  // routes: if given, records have classes, each with its own bounds and parameters (route.h). Then
  // config() returns the result of routed_config(), with the noise_multiplier of the routes, and
  // layout() marks the parameters that no class may reach as public.
  // routing: if given, the declared shares of the layout's experts. They are in trace_header() with
  // the routing-aware rates, which are not a bound: events keep the full rate (sensitivity.h).
  // Throws kInvalidDpConfig for inconsistent arguments, such as an event of another adjacency;
  // kPrivacyBudgetExceeded if `before` alone exceeds the target.
  Mechanism(const Config& resolved, const ModelLayout& layout, MechanismStreams streams,
            const Digest& token, int threads = 1, std::size_t most_positions = 1,
            std::vector<PriorRelease> before = {}, std::optional<Routes> routes = std::nullopt,
            std::optional<RoutingStats> routing = std::nullopt);
  ~Mechanism();
  Mechanism(Mechanism&&) noexcept;

  // What a run must satisfy that starts now. Runs of earlier versions, which accepted more, go on.
  // Throws kInvalidDpConfig unless
  //   sigma_map is the noise that is drawn (require_sigma_map() of budget_allocation.h)
  //   accumulation_context, if given, is the first microbatch: the state counts the others
  //   with regulated and ghost clipping, ghost_bound_hash is the SHA-256 of ghost_bound()
  void require_start() const;
  // The bound of ghost clipping for this layout and these sizes, as the text of a JSON file that an
  // audit can name by its SHA-256: the version of the bound (clip/ghost/ghost.h), the layers, the
  // numbers that enter it, and sensitivity_factor, by which the accountant divides the noise. Equal
  // builds, layouts and sizes give equal text; it does not depend on the noise or the budget.
  std::string ghost_bound() const;
  // What PEFTAwareClipHandler_v1 found; empty unless the strategy is peft_targeted.
  const std::optional<PeftStats>& peft_stats() const noexcept;
  // True if accumulate() accepts backward passes: without privacy, or if clipping.ghost or
  // fused_kernel is set, because only then is their rounding accounted.
  bool takes_passes() const noexcept;
  // True if backward passes are clipped by FlashEfficientClip_v1: fused_kernel is set, and every
  // bound can be decided within a layer.
  bool fuses_passes() const;
  // Steps 5 to 7: clips a microbatch and adds it to the accumulation; at most
  // gradient_accumulation_steps of them before release(). Throws kInvalidGradient for gradients
  // that are not finite (unless nonfinite: zero) or have the wrong shape, and for more records than
  // most_records(); kInvalidDpConfig for backward passes unless takes_passes().
  //   more: this is a piece of a microbatch that the next call continues. Pieces bound the memory,
  //   however many records a step draws; their number is not part of the release.
  //   classes: in a routed run one per record, an index of its plans or kNoRoute; otherwise empty
  void accumulate(const Microbatch& microbatch, bool more = false,
                  std::span<const std::uint32_t> classes = {});
  // Discards the accumulated microbatches of a step that is not released. Call it if release()
  // rejected the step and the run ends or draws the step again.
  void drop_microbatches() noexcept;
  // Steps 8 to 19, after gradient_accumulation_steps microbatches; kInvalidDpConfig before that.
  // Throws kPrivacyBudgetExceeded, kNanInSigma, kInvalidGradient (a released value is not finite),
  // and as the accountant does.
  StepResult release();
  // Recycles the buffers of a released gradient: a later step uses their memory.
  void reuse(GradientSum released) noexcept;
  // accumulate() and release() for all microbatches of a step: either all are added or none.
  //   classes: in a routed run, the classes of each microbatch; otherwise empty
  StepResult apply(std::span<const Microbatch> microbatches,
                   std::span<const std::vector<std::uint32_t>> classes = {});

  // The next two functions are for a step that the caller clips. The caller passes the norms of the
  // records in one or more pieces, receives a scale for each record, forms the scaled sums, and
  // passes them to release_into().
  //
  // take_norms: norms.norms are upper bounds of the norms of each record's parts (the parts of
  // allocation()). zeroed may mark records to leave out. A norm that is not finite marks its record
  // too, or throws kInvalidGradient under nonfinite: abort. Fills norms.scales.
  //   stability: finite and > 0; selects automatic clipping (Bu et al. 2023). The scale is
  //   C_g / (n_g + stability), not limited to 1; a record's norm stays below C_g.
  // Throws kInvalidDpConfig for discrete or Laplace noise, compression, routes, accumulation steps
  // (pieces do not need them), and `stability` with the hybrid strategy; kInvalidGradient for more
  // records than most_records(). Nothing is recorded then.
  void take_norms(RecordNorms& norms, std::optional<double> stability = std::nullopt);
  // held.averages: in, sum_i s_ig x_ig / B with B = sampling().batch; out, the noisy average. The
  // function assumes, and cannot check, that each record's computed term has norm at most C_g / B.
  // The rounding of that sum is not charged. Throws as release(); nothing was released then, and
  // the caller must discard the values.
  //   team: threads to use instead of the library's.
  StepResult release_into(const HeldGradients& held, const numerics::Team* team = nullptr);

  std::uint64_t t() const noexcept;  // completed optimizer steps
  // The end of the run if all remaining steps are taken: the decisions of release(), one after the
  // other, without gradients or draws. `discreet check` shows it as the plan, and an interrupted
  // run claims its epsilon. The running time depends on the number of changes in the schedule, not
  // on the number of steps.
  Forecast forecast() const;
  // The spend so far, at target_delta minus the charge for the noise sampler at target_epsilon.
  // This charge is valid only if the upper end does not exceed target_epsilon. If it does, because
  // steps were charged again, use spent(delta).
  accounting::EpsilonBound spent() const;
  // The same at any delta in (0, 1). The charge for the noise sampler is computed at the returned
  // epsilon or above. Throws kInvalidInput if the charge uses up delta.
  accounting::EpsilonBound spent(double delta) const;
  // The spend so far for groups of up to `group` records together (accounting/group_privacy.h), at
  // a delta in (0, 1), for any accountant of the run. The charge for the noise sampler is computed
  // at the returned epsilon. Throws as accounting::group_epsilon.
  accounting::Certified group_epsilon(std::uint64_t group, double delta) const;
  const accounting::Accountant& accountant() const noexcept;
  const ModelLayout& layout() const noexcept;  // with public modules marked
  const Config& config() const noexcept;
  const SamplingPlan& sampling() const noexcept;
  // The clip bounds and relative multipliers for step t().
  const Allocation& allocation() const noexcept;
  // sigma_g as scheduled so far, and the future without further reviews; empty without noise.
  std::vector<SchedulePiece> schedule() const;
  // sigma_g of the next step, decided as that step will decide it; 0 without noise. A soft guard
  // may still raise it. Throws as the scheduler does if no noise keeps the target.
  double noise_multiplier() const;
  // The maximum number of records of a step. Larger batches are rejected, so that the rounding of a
  // sum of that many is charged. Exact for fixed sizes; for Poisson and balls-and-bins B + 20
  // sqrt(B) + 200, which a batch exceeds with probability below 2^-144 (apply.md).
  std::uint64_t most_records() const noexcept;
  // The reasons why the run is marked not_private; empty if it is private.
  const std::vector<std::string>& not_private() const noexcept;
  // The router of a routed run; null otherwise.
  const Router* router() const noexcept;
  // The mechanism of one use of a contribution of class c, for the account of that contribution.
  // Its events combine this mechanism with the sampling of the run, or with no sampling if the
  // promise must hold for every pattern of uses. The run's event bounds the event of every class.
  accounting::Mechanism use_of(std::size_t c) const;

  // dp_replay_t of the current state.
  Digest replay() const;
  // SHA-256 of save().
  Digest fingerprint() const;
  FailureRecord emit_error(const Error& error) const;
  // The `run_header` and `run_end` lines of the trace.
  cbor::Value trace_header() const;
  cbor::Value trace_end() const;

  // save: all fields of section 10 as deterministic CBOR, without keys. Confidential, because it
  // contains raw partial sums.
  //
  // restore: accepts the output of save() for the same configuration and layout. Otherwise it
  // throws kMalformed, or kInvalidInput naming the difference, and the state is unchanged.
  //   released: the number of steps that the run had released when it stopped, according to its
  //   trace or ledger. There are four cases:
  //
  //   1. It equals the t of the saved state. Nothing is executed twice, and the run continues bit
  //   for bit. The saved t is also correct if all later steps will see bit-identical gradients,
  //   because they release the same values again.
  //
  //   2. It is larger. The steps since then will be executed again, possibly on other gradients,
  //   and the same noise would reveal the difference of the gradients. So noise comes from a fresh
  //   stream from here on, the released steps are charged again, and microbatches of an unfinished
  //   step are dropped. The caller must draw the batches again too, otherwise one subsample would
  //   be released twice: fork() the generator of the Sampler by lineage().
  //
  //   3. It is smaller than in the saved state or than this object has released, or beyond
  //   target_steps: throws kInvalidInput. Steps that this object executed again after earlier calls
  //   are charged too.
  //
  //   4. It is not given: the saved t if the noise is not secure (such a run is not private),
  //   otherwise throws kInvalidInput.
  //
  //   fresh: always use a fresh stream for noise and batches, because the next steps may differ
  //   from those that another copy of this state releases. Between events this costs nothing.
  //   Inside an epoch whose batches are one event (balls and bins, shuffled epochs), that epoch is
  //   charged once more. No effect if the noise is not secure.
  Bytes save() const;
  void restore(ByteView bytes, std::optional<std::uint64_t> released = std::nullopt,
               bool fresh = false);
  // The name of the stream of noise and batches: "lineage/" and 64 hexadecimal digits from the
  // operating system. The last restore() that selected a fresh stream chose it, and save() keeps
  // it. Empty if no restore() selected a fresh stream. Not a secret.
  std::string lineage() const;

  struct State;  // private: apply_impl.h
  struct Fixed;
  struct Accumulation;

 private:
  void clip_into(const Microbatch& microbatch, std::span<const std::uint32_t> classes,
                 Accumulation& into) const;
  // values: receives the noisy average of the accumulation, same size as its sum; or averages that
  // are stored elsewhere, in which case accumulation.sum is not read.
  template <class Values>
  StepResult release(const Accumulation& accumulation, Values& values);
  std::unique_ptr<State> read(ByteView bytes) const;

  // A sum whose values are no longer needed, possibly of another layout.
  std::optional<GradientSum> spare() noexcept;

  std::unique_ptr<Fixed> fixed_;
  std::unique_ptr<State> state_;
  // Buffers of earlier steps: one for the sum of a step, one for its release.
  std::array<std::optional<GradientSum>, 2> spares_;
};

// The `iter` line of the trace.
cbor::Value trace_iter(const StepResult& step);

}  // namespace discreet::mechanism
