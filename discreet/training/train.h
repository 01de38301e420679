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
#include "discreet/training/held_out.h"
#include "discreet/training/step.h"

namespace discreet::training {

// Reads a configuration file for training: load_config(), and additionally
//   missing keys   have the defaults of training (defaults.h), or, if `resumed` is the directory of
//                  a run that continues, the values with which it started
//   paths of data  become absolute: those in the file are relative to `relative_to`
LoadedConfig load_training_config(std::string_view yaml, std::string_view name,
                                  std::span<const std::string> settings,
                                  const std::filesystem::path& relative_to,
                                  const std::filesystem::path* resumed = nullptr);

// The progress of a run. Confidential if it contains losses and accuracies.
struct Progress {
  std::uint64_t step = 0;                // completed
  std::optional<std::uint64_t> planned;  // planned steps; empty: until the budget is reached
  double epsilon = 0;                    // spent so far, upper end
  double steps_per_second = 0;           // of this process
  std::optional<double> seconds_left;
  const Evaluation* evaluation = nullptr;  // when this step ended an epoch
};

struct TrainOptions {
  std::filesystem::path directory;  // RUN
  bool resume = false;
  // To execute a run again: its secret.key, which is not copied. The directory gets none.
  std::optional<std::filesystem::path> secret = {};
  bool again = false;  // to execute a run again: do not append to the ledger of a corpus
  int threads = 1;     // does not affect the bits
  // Skip unreadable rows, as data.on_bad_row: skip, which a new run records. A run that continues
  // keeps what it recorded; this is for runs of earlier versions, which recorded nothing.
  data::BadRow on_bad_row = data::BadRow::kRefuse;
  const data::Arrays* arrays = nullptr;  // used instead of files; must outlive this object
  std::function<void(const Progress&)> progress = {};  // called after every step; may be empty
  const std::atomic<bool>* stop = nullptr;  // when set, the run ends after the current step
};

using run::Ended;
using run::to_string;

struct RunResult {
  std::filesystem::path directory;
  // The claim for everything that the run has released: run::claim().
  std::optional<accounting::Interval> epsilon;
  double delta = 0;
  accounting::Adjacency adjacency = accounting::Adjacency::kAddRemove;
  std::optional<double> accuracy;  // of held-out records, which have no guarantee
  std::optional<double> loss;      // of the same records
  std::uint64_t steps = 0;
  std::optional<std::uint64_t> planned;
  double seconds = 0;  // of this process
  Ended ended = Ended::kCompleted;
  std::vector<std::string> not_private;  // why the run is not private; empty if it is private
  std::vector<std::string> notes;        // sentences for the user
  // Under metrics.release: dp, those of the last step: noised, covered by the claim.
  std::optional<mechanism::ReleasedMetrics> released;
  // Confidential, because they depend on the records; see run::Session::End.
  std::string zeroed;
  bool is_noise_only = false;
  std::vector<std::string> warnings;  // other sentences
  std::uint64_t skipped_rows = 0;     // rows that could not be read and were left out
  std::optional<HeldOut> held_out;
};

// Trains according to the configuration and writes a run directory: config.yaml, model.safetensors,
// checkpoint.cbor, trace.jsonl, secret.key (run_files.h), and with held-out records held_out.json:
// HeldOut, confidential, not sealed. Equal configuration, data, key and
// environment give equal bytes, on any number of threads, whether or not the run was killed and
// resumed.
//
// resume: continues a run. Before anything is computed, throws kInvalidInput, naming the
// difference, if configuration, data or model differ, and kMalformed if trace or checkpoint were
// altered. Steps after the last checkpoint are executed again; their lines must equal those in the
// trace, otherwise kMalformed. If the environment differs, so that bits may differ, these steps are
// instead charged again and drawn from fresh streams, and a line `resumed` records that;
// kPrivacyBudgetExceeded if the budget does not allow it.
//
// Throws kPrivacyBudgetExceeded if even the first step exceeds the budget, kInvalidDpConfig for
// inconsistent sections, and as Setup and RunFiles. Everything that plan_run() rejects is rejected
// before the first step, and a new run then leaves no files. A run that fails in a step leaves its
// directory with a `failure` line, in whichever step; when resumed, it repeats the step and fails
// again, unless the cause was removed.
RunResult train(const Config& resolved, const TrainOptions& options);

}  // namespace discreet::training
