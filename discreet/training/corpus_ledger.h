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

// The ledger of a corpus, as a run of it writes: corpus.ledger, signed by corpus.ledger_key. The
// first run makes it when it reserves its first epoch, under the policy's contract (accountant,
// floors, retention; the stewards are the ledger's key and the policy's authority). Its delta is
// that of the amplified classes, or, without any, the target_delta of that run.
//
// An epoch of a run is reserved in it, durably and signed, before its first step; the last signed
// note is kept beside the run. Between two reservations other processes may write: a withdrawal
// takes effect at the next epoch.
class CorpusLedger {
 public:
  // note: where the run keeps the last note; a ledger that does not extend it was rolled back or
  // forked, and is refused (kMalformed). append: false to execute a run again: nothing is written,
  // and an epoch that is not there is refused.
  // Throws kInvalidDpConfig, naming the key, if one is missing, another policy began the ledger, or
  // amplified classes are promised their epsilon at another delta.
  CorpusLedger(const Config& config, const admission::Policy& policy, std::filesystem::path note,
               bool append);

  const ledger::Header& header() const { return header_; }

  // The last note that the run kept; its sealed checkpoint has a copy.
  const std::optional<std::string>& note() const { return kept_; }
  // Throws kMalformed if the ledger does not extend a note that the checkpoint has: the file of the
  // note could have been rolled back together with the ledger.
  void require_extends(const std::string& note);

  // Whether an epoch of the run is reserved.
  bool has(const std::string& run) const { return !state().epochs(run).empty(); }

  // Withdrawn when the run began; now, if it is not in the ledger yet. Nobody else writes until its
  // first epoch is reserved.
  std::set<Digest> withdrawn_before(const std::string& run) const;

  // Whether a descriptor without the name of a corpus belongs to this one: it is in the ledger.
  bool holds(const Digest& descriptor) const;

  // Throws kInvalidDpConfig if a run that appends and is not in the ledger yet is dated (at) more
  // than an epoch of the policy, and at least a day, before now: contributions that ended since
  // would be used.
  void require_recent(const std::string& run, std::uint64_t at, std::uint64_t epoch_seconds) const;

  // What a run reserves. The epoch is dated by the clock, the hour rounded up, unless the run or
  // the ledger has a later date: consent that ended while a run was stopped is not used; an epoch
  // that is there keeps its date. admitted and refused: of its beginning; they go into the batch of
  // its first epoch, and what the ledger has already is left out.
  struct Reservation {
    std::string run;
    std::uint64_t epoch = 0;
    std::uint64_t at = 0;  // seconds since 1970; if that is later, the ledger's date or the clock's
    std::vector<ledger::Terms> terms;
  };
  void reserve(Reservation reservation, std::vector<ledger::Ledger::Contribution> admitted,
               const ledger::Refusals& refused);

  // Whether a contribution takes part in an epoch that was reserved: it was admitted before, and
  // neither withdrawn before nor had it ended. One that the ledger only summarises now was there.
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
  std::optional<admission::SigningKey> key_;  // of a ledger that is to be made
  std::optional<ledger::Ledger> ledger_;
  ledger::State read_;  // instead, if nothing is appended or there is no ledger yet
};

}  // namespace discreet::training
