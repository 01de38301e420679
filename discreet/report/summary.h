#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/config/config.h"
#include "discreet/run/trace.h"

// What a run directory contains about its run, in two parts: values that everyone may see, and
// values that depend on the data. The public report uses only the first part, so a value that
// nobody thought of is omitted, not published.
namespace discreet::report {

// How a run ended, according to its trace.
enum class Ended : std::uint8_t {
  kCompleted,      // after its planned steps
  kBudgetReached,  // the next step would exceed the budget
  kInterrupted,    // a person stopped it; the run's last line has the claim for that
  kStopped,        // closed before its planned end, without a recorded reason
  kFailed,         // with an error
  kUnfinished,     // no last line: still running, or killed
};
std::string_view to_string(Ended ended) noexcept;  // "completed", "budget_reached" and so on

// The claim for everything that the run has released: recomputed from configuration and recorded
// steps (run/recount.h), and never below the run's last line.
//   kCompleted      the spend of all steps.
//   kBudgetReached  the same, if one more step with the recorded noise would exceed the budget.
//   kInterrupted    what the plan would have spent, if the configuration determines its noise.
//   Otherwise the budget: the mechanism releases no step that would exceed it, so the releases are
//   part of a run within the budget, whenever and for whatever reason it stopped.
struct Claim {
  std::optional<double> lower;  // of epsilon, rounded down; empty unless the run ended by its plan
  double upper = 0;             // of epsilon, rounded up: the guarantee
  double delta = 0;
  accounting::Adjacency adjacency = accounting::Adjacency::kAddRemove;
  // The events that `upper` covers, and the distance of the releases from them (run/recount.h), for
  // composition with other runs. Empty if the claim is the budget, if noise may have reacted to
  // released values, or if it is neither Gaussian nor rounded Gaussian: then compose a Guarantee of
  // `upper` and `delta`.
  std::vector<accounting::RepeatedEvent> events = {};
  double distance = 0;
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

// A class of contributions in a run of a corpus, from the header of the trace. The bounds and the
// noise of the configuration do not apply there.
struct NoiseClass {
  std::string name;
  double noise_multiplier = 0;    // of one use: standard deviation / clip bound of the class
  std::uint64_t most_uses = 0;    // of a contribution, in this run
  double epsilon = 0, delta = 0;  // of a contribution after all of them, zero-out
};

// The promise to several records together (accounting/group_privacy.h), at the claim's delta and
// adjacency.
struct GroupClaim {
  std::uint64_t records = 0;
  double epsilon = 0;  // upper end
};

// Under metrics.release: dp, metrics noised within each step's event, so that everyone may see
// them. They are estimates and may lie outside [0, 1]. Otherwise empty, whatever the trace
// contains.
struct ReleasedMetrics {
  Series clip_fraction;
  std::vector<double> group_clip_fraction;  // of the last step; one per part
};

// Declared in the configuration, scheduled by the accountant from it, or noised: public,
// independent of the records.
struct Declared {
  Config config;  // resolved
  std::string specification;
  std::string config_hash, layout_hash;  // hexadecimal
  std::vector<std::string> not_private;  // why the run promises nothing; empty if it does promise
  std::vector<NoisePart> parts;          // empty if the trace does not contain them
  std::vector<NoiseClass> classes;       // of a corpus; otherwise empty
  Ended ended = Ended::kUnfinished;
  Claim claim;
  std::vector<GroupClaim> groups;  // of 2, 4 and 10 records, if certified
  bool sealed = false;             // the run's seal was verified, with its key (run/trace_seal.h)
  std::string not_sealed;          // a clause with the reason, if it was not
  std::optional<std::string> model_digest;  // SHA-256 of model.safetensors from the last line
  std::optional<std::uint64_t> planned_steps;
  // For runs that ended by their plan or budget, because then the end follows from the
  // configuration; otherwise empty.
  std::optional<std::uint64_t> steps;
  Series epsilon;           // upper end, cumulative; starts after 0 steps
  Series noise_multiplier;  // noise_scale_sigma
  ReleasedMetrics released;
};

// One line "evaluation" of the trace; a null there is empty here.
struct Evaluation {
  double step = 0, epoch = 0;
  std::optional<double> train_loss, train_accuracy, test_loss, test_accuracy;
};

// A warning, failure or resumption, as recorded in the trace.
struct Happening {
  std::uint64_t step = 0;
  std::string kind;  // "warning", "failure", "resumed"
  std::string text;
};

// How the model does on held-out records, by class or as an error (training/held_out.h).
struct HeldOut {
  struct Class {
    std::string name;
    std::uint64_t records = 0;
    std::optional<double> recall, precision;
  };
  std::string majority_class;
  std::optional<double> majority_accuracy, rmse, r2;
  std::vector<Class> classes;
};

// Depends on the data, or on when the run stopped: confidential.
struct Observed {
  std::string name;         // of the run directory
  std::string trace_head;   // SHA-256 of the last line, hexadecimal
  std::uint64_t lines = 0;  // of the trace
  std::uint64_t steps = 0;  // number of released steps
  Series epsilon;           // as in Declared, for every kind of end
  Series noise_multiplier;
  ReleasedMetrics released;
  Series norm_p50, norm_p95;  // of gradients, before clipping
  Series clip_fraction;
  std::uint64_t zeroed_records = 0;  // not finite, over all steps
  std::uint64_t skipped_rows = 0;    // of the data, unreadable and left out
  std::vector<Evaluation> evaluations;
  std::optional<double> accuracy;  // from the run's last line (held out), or the last evaluation
  bool accuracy_is_held_out = false;
  std::optional<HeldOut> held_out;    // from held_out.json, which the seal does not cover
  std::vector<Happening> happenings;  // the first hundred
  std::uint64_t more_happenings = 0;  // number of further ones
};

// "seal verified", or "seal not verified: " and the reason.
std::string seal_sentence(const Declared& declared);

struct RunSummary {
  Declared declared;
  Observed observed;
  // The note in the verified seal, which the run's ledger must extend. Empty: no ledger, no
  // verified seal, or a seal of an earlier version.
  std::optional<std::string> ledger_note = {};
  std::vector<run::TraceLine> trace = {};  // the lines that were checked and sealed: confidential
};

// Reads RUN/config.yaml and RUN/trace.jsonl; and, if they exist, RUN/model.safetensors,
// RUN/trace.seal and the key, by default RUN/secret.key. Throws
//   kInvalidInput  if the directory or one of the first two files does not exist;
//   kMalformed     if the chain of the trace is broken (with the line), a line has an impossible
//                  value, the configuration is not that of the trace, the seal or the model is not
//                  that of the run, or the claim contradicts configuration or steps: a smaller
//                  epsilon than the steps spent, another delta or adjacency;
//   kInvalidDpConfig  as load_config();
//   kIoError       if a file cannot be read.
RunSummary summarize(const std::filesystem::path& run,
                     const std::optional<std::filesystem::path>& secret = std::nullopt);

}  // namespace discreet::report
