#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "discreet/admission/descriptor.h"
#include "discreet/admission/policy.h"
#include "discreet/config/config.h"
#include "discreet/ledger/ledger.h"

namespace discreet::training {

// The ledger of a corpus, as written by a run: corpus.ledger, signed by corpus.ledger_key. The
// first run creates it when it reserves its first epoch, under the policy's contract (accountant,
// floors, retention; the stewards are the ledger's key and the policy's authority). Its delta is
// that of the amplified classes or, without any, the target_delta of that run.
//
// An epoch of a run is reserved in the ledger, durably and signed, before its first step; the run
// directory keeps the last signed note. Other processes may write between two reservations: a
// withdrawal takes effect at the next epoch. Contributions that ended before the policy's retention
// horizon are then summarised (ledger.h).
class CorpusLedger {
 public:
  // note: where the run keeps the last note; a ledger that does not extend it was rolled back or
  // forked, and is rejected (kMalformed). append: false to execute a run again: nothing is written,
  // and a missing epoch is rejected. Throws kInvalidDpConfig, naming the key, if one is missing, if
  // the ledger was created under another policy, or if amplified classes are promised their epsilon
  // at another delta.
  CorpusLedger(const Config& config, const admission::Policy& policy, std::filesystem::path note,
               bool append);

  const ledger::Header& header() const { return header_; }

  // The last note that the run kept; its sealed checkpoint has a copy.
  const std::optional<std::string>& note() const { return kept_; }
  // Throws kMalformed if the ledger does not extend the note in a checkpoint: the file of the note
  // could have been rolled back together with the ledger.
  void require_extends(const std::string& note);

  // True if an epoch of the run is reserved.
  bool has(const std::string& run) const { return !state().epochs(run).empty(); }

  // The contributions withdrawn when the run started; if the run is not in the ledger yet, the
  // current ones. Nobody else can write until its first epoch is reserved.
  std::set<Digest> withdrawn_before(const std::string& run) const;

  // True if a descriptor without a corpus name belongs to this corpus, because it is in the ledger.
  bool holds(const Digest& descriptor) const;

  // Throws kInvalidDpConfig if a run that appends and is not in the ledger yet has a date (at) more
  // than one epoch of the policy, and at least a day, in the past: contributions that ended since
  // would be used. Or more than a day in the future: contributions that are not valid yet would be.
  void require_recent(const std::string& run, std::uint64_t at, std::uint64_t epoch_seconds) const;

  // What a run reserves. The epoch gets the current time, rounded up to the hour, unless the run or
  // the ledger has a later date: consent that ended while a run was stopped is not used. An
  // existing epoch keeps its date. admitted and refused belong to the start of the run; they go
  // into the batch of its first epoch, except those already in the ledger.
  struct Reservation {
    std::string run;
    std::uint64_t epoch = 0;
    std::uint64_t at = 0;  // seconds since 1970; the ledger's date or the clock may be later
    std::vector<ledger::Terms> terms;
  };
  void reserve(Reservation reservation, std::vector<ledger::Ledger::Contribution> admitted,
               const ledger::Refusals& refused);

  // True if a contribution takes part in a reserved epoch: it was admitted before, and was neither
  // withdrawn nor ended before. A contribution that the ledger has summarised since did take part.
  bool takes_part(const std::string& run, std::uint64_t epoch, const Digest& descriptor,
                  admission::Instant not_after) const;

 private:
  const ledger::State& state() const { return ledger_ ? ledger_->state() : read_; }
  void keep_note(std::uint64_t position);
  [[noreturn]] void refuse_missing() const;
  void make();

  std::filesystem::path file_, note_;
  std::optional<std::string> kept_;
  ledger::Header header_;
  Bytes policy_;
  std::optional<admission::SigningKey> key_;  // of a ledger to be created
  std::optional<ledger::Ledger> ledger_;
  ledger::State read_;  // used if nothing is appended or there is no ledger yet
};

}  // namespace discreet::training
