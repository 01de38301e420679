#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "discreet/base/cbor.h"
#include "discreet/config/config.h"
#include "discreet/data/open.h"
#include "discreet/random/key.h"
#include "discreet/run/run_keys.h"
#include "discreet/training/corpus.h"
#include "discreet/training/step.h"

namespace discreet::training {

struct SetupOptions {
  const random::Key& secret;                  // of the run; must outlive the setup
  cbor::Value environment;                    // in which the run was started
  std::optional<std::string> generator = {};  // with which it was started; empty: this machine's
  int threads = 1;                            // does not affect the bits
  data::BadRow on_bad_row = data::BadRow::kRefuse;
  std::filesystem::path ledger_note = {};  // where the run keeps the note of a ledger
  bool again = false;                      // do not append to the ledger of a corpus
  bool resumes = false;                    // the run has started, perhaps under an earlier version
  // Called with the commitment to the data before anything is derived from them; throws if they
  // differ from those of the resumed run.
  std::function<void(const Digest& commitment)> require_data = {};
  // Only determine whether the run can start and what it will spend: every error before the first
  // step is raised, and nothing is written or kept of the records.
  bool plan_only = false;
  // With plan_only: plan for this policy instead of the section corpus, with one contribution of
  // each class that has the bounds of the class. Must outlive this object.
  const admission::Policy* policy = nullptr;
  const data::Arrays* arrays = nullptr;  // used instead of files; must outlive this object
};

// The state of a run before its first step: data, contributions, network, mechanism, sampler and
// optimizer, created from the configuration in one order. `discreet check` and training share this
// code, so they reject the same configurations with the same sentences.
class Setup {
 public:
  // Throws kInvalidDpConfig for inconsistent sections, and as open_data, Corpus, Network,
  // Mechanism, Sampler and Optimizer; the error of a later step, if anything but the budget would
  // end the run before its planned steps are done; kPrivacyBudgetExceeded if even the first step
  // exceeds the budget. resolved: must outlive the setup.
  Setup(const Config& resolved, const SetupOptions& options);
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;

  data::Data data;
  std::vector<std::string> notes;     // sentences for the user; public
  std::vector<std::string> warnings;  // the same; confidential
  std::vector<std::string> features;  // csv: column names, in order
  Digest commitment{};                // data_commitment()
  std::optional<random::Key> key;     // run_key()
  std::optional<run::RunStreams> streams;
  std::optional<Corpus> corpus;
  std::vector<CorpusClass> classes;  // of SetupOptions::policy
  std::optional<Training> training;
  std::uint64_t rows = 0;        // number of training records
  mechanism::Forecast forecast;  // of the whole run, from its first step on

  // An identity of this run and lineage: steps repeated bit for bit count as one use.
  Digest identity(std::string_view purpose, const std::string& lineage) const;
  std::string ledger_run(const std::string& lineage) const;  // its name in the ledger: public

 private:
  void open_data();
  void open_corpus();
  void build();
  mechanism::Routes routes_of_policy(const ModelLayout& layout);
  std::optional<random::Generator> bounds_stream() const;
  const DpConfig& privacy() const { return config_.privacy; }

  const Config& config_;
  SetupOptions options_;
};

}  // namespace discreet::training
