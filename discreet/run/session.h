#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "discreet/base/cbor.h"
#include "discreet/mechanism/step/apply.h"
#include "discreet/random/key.h"
#include "discreet/run/run_files.h"

// The records that every run writes, whatever computes its gradients, and the claim that it may
// make.
namespace discreet::run {

// "UML_OS.DifferentialPrivacy.Apply_v3 2026-02-18", as written in headers and checkpoints.
std::string specification();

enum class Ended : std::uint8_t {
  kCompleted,      // completed: all planned steps
  kBudgetReached,  // budget_reached: the next step would exceed target_epsilon
  kInterrupted,    // interrupted: by a person or program that may have looked at the run
};
std::string_view to_string(Ended ended) noexcept;

// How a run that stops here has ended, according to its plan and accountant.
//   said: the caller's claim; empty: determine it. Throws kInvalidInput if the claim is wrong:
//   completed before the planned steps are done (or if none are planned), budget_reached while the
//   budget allows another step. interrupted is always accepted.
Ended ended(const mechanism::Mechanism& mechanism, std::optional<Ended> said = std::nullopt);

// The claim for everything that the run has released, at target_delta; empty if there is no claim
// (not enabled, no noise).
//   completed, budget_reached: the spend, because the end follows from the configuration.
//   interrupted: what the run would have spent if continued as planned (Mechanism::forecast), or
//   target_epsilon if that is unknown. The person who stopped the run may have looked at it, so the
//   spend until then is not a bound. The same holds for a killed run.
std::optional<accounting::Interval> claim(const mechanism::Mechanism& mechanism, Ended ended);

// Writes the records of one run, both for native training and for PyTorch.
//
//   run_header   header(), at the start of the run
//   iter         each step
//   warning      {t, warning}: each warning of a step (the one about the safety reserve only once),
//                and the first step in which every gradient was left out as not finite
//   failure      why a step was not taken (UML_OS.Error.Emit_v1); also at the end of the budget
//   run_end      end(): how the run ended and what it claims
class Session {
 public:
  // files, mechanism, key (from run_key()): must outlive the session. environment: of this process.
  Session(RunFiles& files, mechanism::Mechanism& mechanism, const random::Key& key,
          cbor::Value environment);

  // The first line of the trace. generator: the generator of the noise, from spelling(); fused:
  // layers are clipped one by one during the backward pass, whatever fused_kernel requests; more:
  // additional fields for this kind of run.
  cbor::Value header(const Digest& data_commitment, std::string_view generator, bool fused,
                     std::vector<cbor::Entry> more) const;

  // state: of the trainer. more: additional fields.
  void write_checkpoint(ByteView state, std::vector<cbor::Entry> more = {});
  // Restores what this class stores in the `training` bytes of a checkpoint.
  void restore(const cbor::Value& training);

  void record(const mechanism::StepResult& step);
  void record(std::string_view kind, const cbor::Value& line) { files_.append(kind, line); }
  // Records the failure durably, once per step, if it is a failure of the mechanism or the end of
  // the budget. Does not record errors in calling or configuring the mechanism, or errors of the
  // machine.
  void fail(const Error& error);

  // The metadata of the model file: the version that wrote it, and the configuration's hash.
  // Public.
  std::map<std::string, std::string> about_model() const;

  struct End {
    Ended ended = Ended::kCompleted;
    std::optional<accounting::Interval> epsilon;  // the claim, as written
    std::uint64_t steps = 0;
    std::optional<std::uint64_t> planned;
    // A sentence that the model contains only noise, or how many steps learned nothing, because no
    // gradient was finite; otherwise empty. Confidential, because it depends on the records.
    std::string zeroed;
    bool is_noise_only = false;  // confidential
  };
  // Records how the run ended, after its last checkpoint and its model. said: as in ended(). more:
  // additional fields of the run_end line; they may be confidential.
  End end(std::optional<Ended> said, std::vector<cbor::Entry> more);

 private:
  std::string zeroed_sentence() const;

  RunFiles& files_;
  mechanism::Mechanism& mechanism_;
  const random::Key& key_;
  cbor::Value environment_;
  Digest config_hash_{};                 // of the original configuration
  std::optional<std::uint64_t> failed_;  // the step whose failure is recorded
  std::uint64_t zeroed_steps_ = 0;       // steps in which every record was left out as not finite
  bool has_learned_ = false;             // from at least one record
};

}  // namespace discreet::run
