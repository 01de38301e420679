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
  const random::Key& secret;                  // of the run; kept by the caller for as long
  cbor::Value environment;                    // in which the run was started
  std::optional<std::string> generator = {};  // that it was started with; none: this machine's
  int threads = 1;                            // the bits do not depend on it
  data::BadRow on_bad_row = data::BadRow::kRefuse;  //
  std::filesystem::path ledger_note = {};           // where the run keeps the note of a ledger
  bool again = false;                               // nothing is appended to the ledger of a corpus
  // Called with the data's commitment before anything is made of them; throws if they are others
  // than those of the run that is resumed.
  std::function<void(const Digest& commitment)> require_data = {};
  // Only to know whether the run can start and what it will spend: all that is refused before the
  // first step is refused, and nothing is written or kept of the records.
  bool plan_only = false;
};

// What a run has before its first step: data, contributions, network, mechanism, sampler and
// optimizer, made from the configuration in one order. `discreet check` and training use the same,
// so that one refuses what the other does, in the same words.
class Setup {
 public:
  // Throws kInvalidDpConfig for sections that do not fit together, and as open_data, Corpus,
  // Network, Mechanism, Sampler and Optimizer; what a later step would throw, if anything but the
  // budget ends the run before its planned steps are done; kPrivacyBudgetExceeded if not even the
  // first step is within the budget. resolved: kept by the caller for as long.
  Setup(const Config& resolved, const SetupOptions& options);
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;

  data::Data data;
  std::vector<std::string> notes;     // sentences for a person; public
  std::vector<std::string> features;  // csv: the names of the columns, in their order
  Digest commitment{};                // data_commitment()
  std::optional<random::Key> key;     // run_key()
  std::optional<run::RunStreams> streams;
  std::optional<Corpus> corpus;
  std::optional<Training> training;
  std::uint64_t rows = 0;        // records that train
  mechanism::Forecast forecast;  // of the whole run, from its first step on

  // Of this run and lineage: what is executed again bit for bit was used once.
  Digest identity(std::string_view purpose, const std::string& lineage) const;
  std::string ledger_run(const std::string& lineage) const;  // its name in the ledger: public

 private:
  void open_data();
  void open_corpus();
  void build();
  std::optional<random::Generator> bounds_stream() const;
  const DpConfig& privacy() const { return config_.privacy; }

  const Config& config_;
  SetupOptions options_;
};

}  // namespace discreet::training
