#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "discreet/accounting/composition.h"
#include "discreet/config/config.h"
#include "discreet/config/config_read.h"
#include "discreet/data/dataset.h"
#include "discreet/training/step.h"

namespace discreet::training {

// A configuration file for training: load_config(), and besides
//   nonfinite      zero unless the file says otherwise: one record cannot stop the run
//   paths of data  absolute: those of the file are relative to `relative_to`
LoadedConfig load_training_config(std::string_view yaml, std::string_view name,
                                  std::span<const std::string> settings,
                                  const std::filesystem::path& relative_to);

// How far a run is. Confidential where it holds losses and accuracies.
struct Progress {
  std::uint64_t step = 0;                // done
  std::optional<std::uint64_t> planned;  // steps; none: until the budget is reached
  double epsilon = 0;                    // spent so far, upper end
  double steps_per_second = 0;           // of this process
  std::optional<double> seconds_left;
  const Evaluation* evaluation = nullptr;  // when this step ended an epoch
};

struct TrainOptions {
  std::filesystem::path directory;  // RUN
  bool resume = false;
  // To execute a run again: its secret.key, of which no copy is made. The directory gets none.
  std::optional<std::filesystem::path> secret = {};
  bool again = false;  // the same: nothing is appended to the ledger of a corpus
  int threads = 1;     // the bits do not depend on it
  data::BadRow on_bad_row = data::BadRow::kRefuse;
  std::function<void(const Progress&)> progress = {};  // after every step; may be empty
  const std::atomic<bool>* stop = nullptr;  // when it turns true the run ends after its step
};

using run::Ended;
using run::to_string;

struct RunResult {
  std::filesystem::path directory;
  // The claim for all that the run has released: run::claim().
  std::optional<accounting::Interval> epsilon;
  double delta = 0;
  accounting::Adjacency adjacency = accounting::Adjacency::kAddRemove;
  std::optional<double> accuracy;  // of held-out records, which have no guarantee
  std::optional<double> loss;      // of the same
  std::uint64_t steps = 0;
  std::optional<std::uint64_t> planned;
  double seconds = 0;  // of this process
  Ended ended = Ended::kCompleted;
  std::vector<std::string> not_private;  // why the run is not private; empty if it is
  std::vector<std::string> notes;        // sentences a person should read
  // Of metrics.release: dp, those of the last step: noised, inside the claim.
  std::optional<mechanism::ReleasedMetrics> released;
  // Confidential: it depends on the records. run::Session::End says when they are given.
  std::string zeroed;
  bool is_noise_only = false;
};

// Trains as the configuration says and leaves a run directory: config.yaml, model.safetensors,
// checkpoint.cbor, trace.jsonl, secret.key (run_files.h). The same configuration, data, key and
// environment give the same bytes, on any number of threads, whether or not the run was killed and
// resumed in between.
//
// resume: continues a run. Before anything is computed it is refused (kInvalidInput, naming what
// differs) if configuration, data or model are others, and kMalformed if trace or checkpoint were
// altered. Steps after the last checkpoint are executed again; their lines must come out as they
// are in the trace, else kMalformed. Where the environment is another, so that bits may differ,
// they are not repeated but charged again, drawn from fresh streams (soundness D1), and a line
// `resumed` says so; kPrivacyBudgetExceeded if the budget does not allow that.
//
// Throws kPrivacyBudgetExceeded if not even the first step is within the budget, kInvalidDpConfig
// for sections that do not fit together, as Setup and RunFiles. Whatever plan_run() refuses is
// refused before the first step, and a new run leaves no files then. A run that fails in a step
// leaves its directory with a `failure` line, whichever step it is; resumed, it repeats the step
// and fails as before, unless what failed has changed.
RunResult train(const Config& resolved, const TrainOptions& options);

}  // namespace discreet::training
