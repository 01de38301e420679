#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/admission/ed25519.h"
#include "discreet/ledger/entry.h"
#include "discreet/ledger/merkle.h"
#include "discreet/ledger/state.h"
#include "discreet/ledger/store.h"

namespace discreet::ledger {

// The one writer of a ledger. Each operation appends one batch of leaves and signs:
//   1. the leaves are checked by the rules every verifier applies (state.h);
//   2. they are committed, durably;
//   3. they are read back from the disk and hashed;
//   4. the checkpoint is signed and committed, durably, and only then does the operation return.
// A process killed before 4 leaves leaves that no note covers; open() drops them. So what an
// operation reported is there, and what it did not report may be done again: an epoch that was
// reserved, a descriptor that was withdrawn or admitted is there once.
//
// Operations throw kInvalidInput, kMalformed or kInvalidDpConfig for what breaks a rule, kIoError
// when the machine fails; the ledger is then as it was.
class Ledger {
 public:
  // A new file with header and policy, signed. `header.key` and `header.policy` are filled in.
  static Ledger create(const std::filesystem::path& path, Header header, ByteView policy,
                       admission::SigningKey key);
  // Reads and verifies the whole file (attestations aside). `last_seen`: the note that the caller
  // kept; a ledger that does not extend it was rolled back or forked, and is refused with
  // kMalformed. kIoError if another process writes for longer than `patience_ms`.
  static Ledger open(const std::filesystem::path& path, admission::SigningKey key,
                     std::optional<std::string> last_seen = {}, int patience_ms = kPatience);
  static constexpr int kPatience = 10'000;

  // Lets other processes write until refresh() or the next operation, which reads what they wrote;
  // it refuses a ledger that no longer extends note().
  void let_go();
  void refresh();

  // Reads the file again; kMalformed if it does not extend this note, as open().
  void require_extends(std::string note) { reload(std::move(note)); }

  const State& state() const { return state_; }
  const std::string& note() const { return note_; }  // the last checkpoint: keep a copy elsewhere

  // Contributions that passed the gate; and how many did not, per reason. An attestation that was
  // not verified is. Throws kInvalidInput for a descriptor admitted or withdrawn before.
  struct Contribution {
    Bytes descriptor;   // canonical bytes
    Bytes attestation;  // detached COSE_Sign1 over them
    admission::PublicKey key;
    std::uint64_t least_multiplier = 0;  // amplified: as in Admission
    bool verified = false;               // the gate has verified the attestation just now
  };
  void admit(std::span<const Contribution> contributions, const Refusals& refusals = {});

  // Reserves an epoch: one use for every contribution of the classes in `terms` that is neither
  // withdrawn nor ended at `as_of`, whoever will take part in it. To be called before the epoch's
  // first step. run, epoch and as_of of the terms are filled in, and in a ledger of schema 1 the
  // planned steps are left out. What was admitted and refused for it goes into the same batch: all
  // of it is there once, or nothing.
  // Returns false, and does nothing, if the epoch was reserved before. kInvalidInput if epochs are
  // left out; and as admit().
  bool reserve_epoch(const std::string& run, std::uint64_t epoch, std::uint64_t as_of,
                     std::vector<Terms> terms, std::span<const Contribution> admitted = {},
                     const Refusals& refusals = {});

  // Appends the withdrawals that are not there yet, and says how many. kInvalidInput for one signed
  // by neither contributor nor steward.
  std::size_t withdraw(std::span<const Withdrawal> withdrawals);

  // Summarises every contribution that ended at least header.retention seconds before `now`. False
  // if there is none.
  bool summarise(std::uint64_t now);

  void release(const std::string& run, const Digest& manifest);

  // Appends those of the deletions, all of one model and in order, that are not there yet, and says
  // how many. kInvalidInput if numbers are left out.
  std::size_t record_deletions(std::span<const Deletion> deletions);

  // Where entries with these bytes stand, and a receipt (receipt.h) of each, from the file. Throws
  // kInvalidInput for one that is not there.
  struct Placed {
    std::uint64_t position;
    Bytes receipt;
  };
  std::vector<Placed> receipts(std::span<const Bytes> leaves);

 private:
  Ledger(Store store, admission::SigningKey key) : store_(std::move(store)), key_(std::move(key)) {}
  void reload(std::optional<std::string> last_seen = {});
  using Add = std::function<void(const Entry&)>;
  using Build = std::function<void(const Add&, Store::Batch&)>;
  static std::vector<Store::Opening> openings_of(std::span<const Contribution> contributions);
  void add_admissions(std::span<const Contribution> contributions, const Refusals& refusals,
                      std::vector<Store::Opening> openings, const Add& add, Store::Batch& batch);
  using Removed = std::vector<std::pair<std::uint64_t, Digest>>;
  void write(const Build& build, const Removed& removed = {});
  void append_and_sign(const Build& build, const Removed& removed);

  Store store_;
  admission::SigningKey key_;
  State state_;
  Frontier frontier_;
  std::string note_;
  bool stale_ = false;  // memory may say something else than the file
  bool away_ = false;   // others may write
};

}  // namespace discreet::ledger
