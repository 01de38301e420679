#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/config/config.h"

// What a run directory says about its run, in two halves: what may be shown to anyone, and what
// depends on the data. The public report is made from the first half alone, so that a value nobody
// thought about is left out and not let through (soundness E1).
namespace discreet::report {

// How a run ended, by its trace.
enum class Ended : std::uint8_t {
  kCompleted,      // after its planned steps
  kBudgetReached,  // the next step would have spent more than the budget
  kInterrupted,    // a person stopped it; the run's last line has the claim for that
  kStopped,        // it was closed before its planned end, nothing says why
  kFailed,         // with an error
  kUnfinished,     // no last line: still running, or killed
};
std::string_view to_string(Ended ended) noexcept;  // "completed", "budget_reached" and so on

// What is claimed for everything the run has released: recomputed from configuration and recorded
// steps (run/recount.h), never less than the run's last line says.
//   kCompleted      what all steps spent.
//   kBudgetReached  the same, if one more step would pass the budget by the recorded noise.
//   kInterrupted    what the plan would have spent, if the configuration fixes its noise.
//   Otherwise: the budget. The mechanism releases no step that would pass it, so what was released
//   is a part of a run within the budget, whenever and why ever it stopped (soundness B7).
struct Claim {
  std::optional<double> lower;  // of epsilon, rounded down; none unless the run ended by its plan
  double upper = 0;             // of epsilon, rounded up: the guarantee
  double delta = 0;
  accounting::Adjacency adjacency = accounting::Adjacency::kAddRemove;
};

// A value after `step` steps.
struct Point {
  double step = 0;
  double value = 0;
};
using Series = std::vector<Point>;  // ascending in step

// A part of the model that is clipped together, at the first step.
struct NoisePart {
  std::string name;
  double clip_norm = 0;         // C_g
  double noise_multiplier = 0;  // sigma_g: the noise on the sum has standard deviation sigma_g C_g
};

// A class of contributions in a run of a corpus, as the header of the trace says it: the bounds and
// the noise of the configuration have no meaning there.
struct NoiseClass {
  std::string name;
  double noise_multiplier = 0;    // of one use: standard deviation over the clip bound of the class
  std::uint64_t most_uses = 0;    // of a contribution, in this run
  double epsilon = 0, delta = 0;  // of a contribution after all of them, zero-out
};

// What the run promises to several records together (accounting/group_privacy.h), at the claim's
// delta and under its adjacency.
struct GroupClaim {
  std::uint64_t records = 0;
  double epsilon = 0;  // upper end
};

// Under metrics.release: dp: noised inside each step's event, so that anyone may see them. They are
// estimates, which may lie outside of 0 to 1. Empty otherwise, whatever the trace says.
struct ReleasedMetrics {
  Series clip_fraction;
  std::vector<double> group_clip_fraction;  // of the last step; one per part
};

// Declared in the configuration, scheduled by the accountant from it, or noised: for everyone,
// whatever the records are.
struct Declared {
  Config config;  // resolved
  std::string specification;
  std::string config_hash, layout_hash;  // hexadecimal
  std::vector<std::string> not_private;  // why the run promises nothing; empty if it does
  std::vector<NoisePart> parts;          // empty where the trace does not say them
  std::vector<NoiseClass> classes;       // of a corpus; else empty
  Ended ended = Ended::kUnfinished;
  Claim claim;
  std::vector<GroupClaim> groups;  // of 2, 4 and 10 records, where they are certified
  bool sealed = false;             // the run's seal was verified, with its key (run/seal.h)
  std::string not_sealed;          // a clause that says why, if it was not
  std::optional<std::string> model_digest;  // SHA-256 of model.safetensors as the last line says it
  std::optional<std::uint64_t> planned_steps;
  // Of runs that ended by their plan or budget, where the end itself follows from the
  // configuration; empty and none otherwise.
  std::optional<std::uint64_t> steps;
  Series epsilon;           // upper end, cumulative; begins after 0 steps
  Series noise_multiplier;  // noise_scale_sigma
  ReleasedMetrics released;
};

// One line "evaluation" of the trace, none where it has null.
struct Evaluation {
  double step = 0, epoch = 0;
  std::optional<double> train_loss, train_accuracy, test_loss, test_accuracy;
};

// A warning, failure or resumption, as the trace says it.
struct Happening {
  std::uint64_t step = 0;
  std::string kind;  // "warning", "failure", "resumed"
  std::string text;
};

// Depends on the data, or on when the run stopped: confidential.
struct Observed {
  std::string name;         // of the run directory
  std::string trace_head;   // SHA-256 of the last line, hexadecimal
  std::uint64_t lines = 0;  // of the trace
  std::uint64_t steps = 0;  // released
  Series epsilon;           // as in Declared, however the run ended
  Series noise_multiplier;
  ReleasedMetrics released;
  Series norm_p50, norm_p95;  // of gradients, before clipping
  Series clip_fraction;
  std::uint64_t zeroed_records = 0;  // not finite, over all steps
  std::vector<Evaluation> evaluations;
  std::optional<double> accuracy;  // of the run's last line (held out), or of the last evaluation
  bool accuracy_is_held_out = false;
  std::vector<Happening> happenings;  // the first hundred
  std::uint64_t more_happenings = 0;  // not in the list
};

// "seal verified", or "seal not verified: " and why.
std::string seal_sentence(const Declared& declared);

struct RunSummary {
  Declared declared;
  Observed observed;
  // The note that the verified seal holds: the run's ledger must extend it. None: no ledger, no
  // verified seal, or one of an earlier version.
  std::optional<std::string> ledger_note = {};
};

// Reads RUN/config.yaml and RUN/trace.jsonl; and RUN/model.safetensors, RUN/trace.seal and the key,
// by default RUN/secret.key, as far as they are there. Throws
//   kInvalidInput  if the directory or one of the first two is not there;
//   kMalformed     if the chain of the trace is broken (with the line), a line has a value that
//                  cannot be, the configuration is not that of the trace, the seal or the model is
//                  not that of the run, or the claim contradicts configuration or steps: less
//                  epsilon than the steps spent, another delta or adjacency;
//   kInvalidDpConfig  as load_config();
//   kIoError       if a file cannot be read.
RunSummary summarize(const std::filesystem::path& run,
                     const std::optional<std::filesystem::path>& secret = std::nullopt);

}  // namespace discreet::report
