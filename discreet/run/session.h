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

// A run's life: what every run records, whoever computes its gradients, and what it may claim.
namespace discreet::run {

// "UML_OS.DifferentialPrivacy.Apply_v3 2026-02-18", as headers and checkpoints name it.
std::string specification();

enum class Ended : std::uint8_t {
  kCompleted,      // completed: all planned steps
  kBudgetReached,  // budget_reached: the next step would have spent more than target_epsilon
  kInterrupted,    // interrupted: by a person or a program that may have looked at the run
};
std::string_view to_string(Ended ended) noexcept;

// What a run that ends here has done, by its plan and accountant alone.
//   said: what the caller says. none: what it is. Throws kInvalidInput if the run is not that:
//   completed before the planned steps are done (or without any planned), budget_reached while the
//   budget allows another step. A run may always be said to be interrupted.
Ended ended(const mechanism::Mechanism& mechanism, std::optional<Ended> said = std::nullopt);

// The claim for all that the run has released, at target_delta; none if nothing is claimed (not
// enabled, no noise). completed, budget_reached: what was spent, since the end follows from the
// configuration. interrupted: whoever stopped the run may have looked at it, and what was spent by
// then is no bound (soundness B7). The claim is what the run would have spent had it gone on as
// planned (Mechanism::forecast), or target_epsilon where that is not known; so is that of a run
// that was killed.
std::optional<accounting::Interval> claim(const mechanism::Mechanism& mechanism, Ended ended);

// Writes the records of one run. The same for native training and PyTorch.
//
//   run_header   header(), at its start
//   iter         each step, and a `warning` {t, warning} for each of its warnings (that of the
//   safety
//                reserve once), and for the first step of which every gradient was left out as not
//                finite
//   failure      why a step was not taken (UML_OS.Error.Emit_v1); the budget's end is one
//   run_end      end(): how the run ended and what it claims
class Session {
 public:
  // files, mechanism, key (of run_key()): kept by the caller for as long. environment: of this
  // process.
  Session(RunFiles& files, mechanism::Mechanism& mechanism, const random::Key& key,
          cbor::Value environment);

  // The first line of the trace. generator: of the noise, spelling(); more: what else is to be said
  // of this kind of run.
  cbor::Value header(const Digest& data_commitment, std::string_view generator,
                     std::vector<cbor::Entry> more) const;

  // state: of whoever trains. more: further fields beside it.
  void write_checkpoint(ByteView state, std::vector<cbor::Entry> more = {});
  // Takes back what this class keeps in the `training` bytes of a checkpoint.
  void restore(const cbor::Value& training);

  void record(const mechanism::StepResult& step);
  void record(std::string_view kind, const cbor::Value& line) { files_.append(kind, line); }
  // Records the failure, durably, if it is one of the mechanism's or the budget's end; errors in
  // how the mechanism was called or configured, and of the machine, are not. Once for each step.
  void fail(const Error& error);

  // The metadata of the model's file: who wrote it, and the configuration's hash. Public.
  std::map<std::string, std::string> about_model() const;

  struct End {
    Ended ended = Ended::kCompleted;
    std::optional<accounting::Interval> epsilon;  // the claim, as it is written
    std::uint64_t steps = 0;
    std::optional<std::uint64_t> planned;
    // Confidential: it depends on the records. That the model holds noise only, or how many steps
    // learned nothing, because every gradient was not finite; empty if there is none.
    std::string zeroed;
    bool is_noise_only = false;  // confidential
  };
  // Writes how the run ended, after its last checkpoint and its model. said: as ended(). more: of
  // the run_end line; confidential values may be among them.
  End end(std::optional<Ended> said, std::vector<cbor::Entry> more);

 private:
  std::string zeroed_sentence() const;

  RunFiles& files_;
  mechanism::Mechanism& mechanism_;
  const random::Key& key_;
  cbor::Value environment_;
  Digest config_hash_{};                 // of the configuration as it was given
  std::optional<std::uint64_t> failed_;  // the step whose failure is recorded
  std::uint64_t zeroed_steps_ = 0;       // in which every record was left out as not finite
  bool has_learned_ = false;             // of at least one record
};

}  // namespace discreet::run
