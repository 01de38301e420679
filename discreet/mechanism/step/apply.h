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

// The randomness of a mechanism, one derived stream each.
struct MechanismStreams {
  random::Generator noise;  // of stream::kNoise; secret. A key never serves two different runs.
  random::Generator masks;  // of "compression": public
};
// From the run's master key: AES or ChaCha if config.secure; Philox under the configured public
// seed otherwise, whatever the master key.
MechanismStreams mechanism_streams(const DpConfig& config, const random::Key& master);

// SHA-256 over the canonical resolved configuration, the data set's digest commitment and the
// specification's version.
//   data_commitment: must hide the data, a digest with a secret salt. Tokens go into the trace, and
//   whoever could recompute one for a guessed data set would learn whether the guess is right.
Digest kernel_replay_token(const Config& resolved, const Digest& data_commitment);

// What was released from the same records before the first step, such as private bounds of their
// columns. It is a part of the run: composed first, inside the budget.
struct PriorRelease {
  accounting::Event event;
  std::uint64_t coordinates = 0;  // of continuous Gaussian noise drawn for it: charged to delta
  friend bool operator==(const PriorRelease&, const PriorRelease&) = default;
};

// The clipped gradients of a step that whoever trains holds, as PyTorch does: one span per tensor
// of the layout, in its order; empty where the tensor is not private.
//   averages  in: the clipped averages; out: with noise
//   rounded   no span, or as many and as long: set to what `averages` are in the end, rounded to
//             binary32. This is post-processing: the noise was added in binary64.
struct HeldGradients {
  std::vector<std::span<double>> averages;
  std::vector<std::span<float>> rounded;
};

// What one optimizer step gives: gradients, budget, released and warnings are what the event is of,
// or follow from configuration and accountant; metrics are confidential.
struct StepResult {
  std::uint64_t t = 0;
  // The noisy average, in binary64 numbers that run.compute_dtype can hold. Tensors that are not
  // private have none. Empty after release_into(), which writes them where they lie.
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
  Digest dp_replay{};       // of the state that stays
  Digest state_fp{};        // SHA-256 of the state, which is that before the failed step
  std::string diagnostics;  // the sentence: confidential, it may name a record or a batch size
  cbor::Value to_cbor() const;
};

// The mechanism with its state: clips microbatches, and once per optimizer step releases the noisy
// average and accounts for it, in the order of the specification's section 6. Every call that
// throws leaves the state as it was, in every byte of save(), and releases nothing.
//
// The budget is checked for the step about to be released: epsilon.upper <= target_epsilon, no
// tolerance. Where the event is an epoch, or granularity PER_EPOCH, the whole epoch is checked and
// composed at its first step, and sigma stays as it is inside it.
//
// With enabled: false the result is the average of what was given, neither clipped nor noised, and
// the budget stays as it is.
class Mechanism {
 public:
  // resolved: by resolve() and accepted by prevalidate(). layout: before public modules are marked.
  // token: kernel_replay_token(). threads: results do not depend on it. most_positions: of a layer
  // in backward passes (ghost, fused): of a sequence, or of the pixels of a padded image; public.
  // The rounding of sums over so many is charged, and passes with more are refused. before: what
  // was released from these records already; spent(), schedules, projections and the saved state
  // include it. Throws kInvalidDpConfig for what does not fit together, such as an event of another
  // adjacency; kPrivacyBudgetExceeded if `before` alone is above the target. routes: records have
  // classes, each with its own bounds and parameters (route.h). config() is then routed_config()'s:
  // its noise_multiplier is that of the routes; and layout() has the parameters that no class may
  // reach as public.
  Mechanism(const Config& resolved, const ModelLayout& layout, MechanismStreams streams,
            const Digest& token, int threads = 1, std::size_t most_positions = 1,
            std::vector<PriorRelease> before = {}, std::optional<Routes> routes = std::nullopt);
  ~Mechanism();
  Mechanism(Mechanism&&) noexcept;

  // Steps 5 to 7: clips a microbatch into the accumulation. At most gradient_accumulation_steps of
  // them before release(). Throws kInvalidGradient for gradients that are not finite (unless
  // nonfinite: zero), of the wrong shape, or for more records than most_records(); kInvalidDpConfig
  // for backward passes unless clipping.ghost or fused_kernel is set: their rounding is accounted
  // then.
  //   more: this is a piece of a microbatch, and the next one goes on with it. Memory is bounded by
  //   pieces, however many records a step draws; their number is no part of the release.
  //   classes: of a routed run, one per record: an index of its plans, or kNoRoute; else empty
  void accumulate(const Microbatch& microbatch, bool more = false,
                  std::span<const std::uint32_t> classes = {});
  // Forgets the microbatches of a step that is not released: release() refused it, and the run ends
  // or draws the step anew.
  void drop_microbatches() noexcept;
  // Steps 8 to 19, once gradient_accumulation_steps microbatches are in; kInvalidDpConfig before.
  // Throws kPrivacyBudgetExceeded, kNanInSigma, kInvalidGradient (a released value is not finite)
  // and as the accountant.
  StepResult release();
  // Takes gradients of a release that nobody needs any more: a later step uses their memory.
  void reuse(GradientSum released) noexcept;
  // Both, for all microbatches of a step: they are taken in, or none is.
  //   classes: of a routed run, those of each microbatch; else empty
  StepResult apply(std::span<const Microbatch> microbatches,
                   std::span<const std::vector<std::uint32_t>> classes = {});

  // A step that is clipped elsewhere: the records' norms come here in one or more pieces, each gets
  // its scales, and release_into() makes the release of the sums that were formed with them.
  //
  // take_norms: norms.norms are upper bounds of the norms of each record's parts (those of
  // allocation()), zeroed may mark records to leave out. A norm that is not finite marks its record
  // too, or throws kInvalidGradient under nonfinite: abort. Fills norms.scales. stability:
  // automatic clipping (Bu et al. 2023): the scale is C_g / (n_g + stability), not at most 1; a
  // record's norm stays below C_g. > 0. Throws kInvalidDpConfig for discrete or Laplace noise,
  // compression, routes, and accumulation steps (pieces need none); kInvalidGradient for more
  // records than most_records(); then nothing is taken.
  void take_norms(RecordNorms& norms, std::optional<double> stability = std::nullopt);
  // held.averages: in, sum_i s_ig x_ig / B with B = sampling().batch; out, the noisy average.
  // Assumed, not checked: that each record's term has norm at most C_g / B, in what was computed.
  // Rounding of that sum is not charged. Throws as release(); the values are then to be thrown
  // away, and nothing was released.
  //   team: threads to use instead of our own.
  StepResult release_into(const HeldGradients& held, const numerics::Team* team = nullptr);

  std::uint64_t t() const noexcept;  // optimizer steps done
  // How the run ends if all steps to come are taken: the decisions of release(), one after the
  // other, without a gradient or a draw. The plan of `discreet check`, and what an interrupted run
  // claims. The time it takes grows with the changes of the schedule, not with the steps.
  Forecast forecast() const;
  // Spent so far, at target_delta less what the noise sampler leaves out at target_epsilon, which
  // the upper end must not exceed; if steps that were charged again exceed it, use spent(delta).
  accounting::EpsilonBound spent() const;
  // The same at any delta in (0, 1). What the noise sampler leaves out is charged at the epsilon
  // that is returned, or above. Throws kInvalidInput if nothing is left of delta.
  accounting::EpsilonBound spent(double delta) const;
  // Spent so far for groups of up to `group` records together (accounting/group_privacy.h), at a
  // delta in (0, 1), whatever the accountant of the run. What the noise sampler leaves out is
  // charged at the epsilon that is returned. Throws as accounting::group_epsilon.
  accounting::Certified group_epsilon(std::uint64_t group, double delta) const;
  const accounting::Accountant& accountant() const noexcept;
  const ModelLayout& layout() const noexcept;  // with public modules marked
  const Config& config() const noexcept;
  const SamplingPlan& sampling() const noexcept;
  // The clip bounds and relative multipliers in force at step t().
  const Allocation& allocation() const noexcept;
  // sigma_g as scheduled so far, and further if nothing is reviewed; none without noise.
  std::vector<SchedulePiece> schedule() const;
  // sigma_g of the step to come, decided as that step will; 0 without noise. A soft guard may still
  // raise it. Throws as the scheduler does where no noise keeps to the target.
  double noise_multiplier() const;
  // The most records of a step: batches beyond it are refused, so that the rounding of a sum of so
  // many is charged. Fixed sizes exactly; for Poisson and balls-and-bins B + 20 sqrt(B) + 200,
  // which a batch passes with probability below 2^-144 (apply.md).
  std::uint64_t most_records() const noexcept;
  // Why the run is stamped not_private; empty if it is not.
  const std::vector<std::string>& not_private() const noexcept;
  // Of a routed run; null otherwise.
  const Router* router() const noexcept;
  // What one use of a contribution of class c is, for its own account: its events are this with the
  // sampling of the run, or without any where the promise is for every pattern of uses. The run's
  // own event is no better for any class.
  accounting::Mechanism use_of(std::size_t c) const;

  // dp_replay_t of the state as it is.
  Digest replay() const;
  // SHA-256 of save().
  Digest fingerprint() const;
  FailureRecord emit_error(const Error& error) const;
  // The `run_header` and `run_end` lines of the trace.
  cbor::Value trace_header() const;
  cbor::Value trace_end() const;

  // Every field of section 10, as deterministic CBOR: confidential (raw partial sums), without
  // keys. restore() takes back what save() of the same configuration and layout gave; else
  // kMalformed, or kInvalidInput naming what differs, and the state stays as it was.
  //   released: how many steps the run had released when it ended, by its trace or ledger.
  //     The t of the saved state: nothing is executed twice, and the run goes on bit for bit. Also
  //     right if every step since then will see the same gradients in every bit: what is released
  //     twice is released once.
  //     More: the steps since then will be executed again on what may be other gradients. The same
  //     noise would give away their difference: noise comes from a fresh stream from here on, what
  //     was released is charged again, and microbatches of an unfinished step are dropped. The
  //     batches must be drawn anew too, or one subsample would be released twice: fork() the
  //     generator of the Sampler by lineage().
  //     Less than in the saved state or than this object has released, or beyond target_steps:
  //     kInvalidInput. Steps that this object executed again after earlier calls are charged too.
  //     Not given: as the saved t if the noise is not
  //     secure (such a run is not private); kInvalidInput if it is.
  //   fresh: noise and batches come from a fresh stream in any case, because the steps to come may
  //     not repeat the bits that another copy of this state releases. Costs nothing between events;
  //     inside an epoch whose batches are one event (balls and bins, shuffled epochs) that epoch is
  //     charged once more. Without effect if the noise is not secure.
  Bytes save() const;
  void restore(ByteView bytes, std::optional<std::uint64_t> released = std::nullopt,
               bool fresh = false);
  // The name of the stream since steps were last executed again, 64 digits from the operating
  // system; empty in a run without such steps. Not a secret.
  std::string lineage() const;

  struct State;  // private: apply_impl.h
  struct Fixed;
  struct Accumulation;

 private:
  void clip_into(const Microbatch& microbatch, std::span<const std::uint32_t> classes,
                 Accumulation& into) const;
  // values: where the noisy average of the accumulation goes, as large as its sum; or averages that
  // lie elsewhere, and accumulation.sum is not read.
  template <class Values>
  StepResult release(const Accumulation& accumulation, Values& values);
  std::unique_ptr<State> read(ByteView bytes) const;

  // A sum whose values nobody needs, of another layout perhaps.
  std::optional<GradientSum> spare() noexcept;

  std::unique_ptr<Fixed> fixed_;
  std::unique_ptr<State> state_;
  // Of steps before, for their memory only: one for the sum of a step, one for its release.
  std::array<std::optional<GradientSum>, 2> spares_;
};

// The `iter` line of the trace.
cbor::Value trace_iter(const StepResult& step);

}  // namespace discreet::mechanism
