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

// The writer of a ledger; there is at most one at a time. Each operation appends and signs one
// batch of leaves:
//   1. it checks the leaves by the rules that every verifier applies (state.h);
//   2. it commits them durably;
//   3. it reads them back from disk and hashes them;
//   4. it signs the checkpoint and commits it durably; only then does the operation return.
// If a process is killed before step 4, some leaves may have no note; open() drops them. So
// everything that an operation reported is present, and the caller may repeat an unreported
// operation: an epoch is reserved only once, and a descriptor is admitted or withdrawn only once.
//
// Operations throw kInvalidInput, kMalformed or kInvalidDpConfig if a rule is violated, and
// kIoError if the machine fails. The ledger is then unchanged.
class Ledger {
 public:
  // Creates a new file with header and policy, signed. Fills in `header.key` and `header.policy`.
  static Ledger create(const std::filesystem::path& path, Header header, ByteView policy,
                       admission::SigningKey key);
  // Reads and verifies the whole file (except attestations). last_seen: a note that the caller
  // kept. A ledger that does not extend it was rolled back or forked: throws kMalformed. Throws
  // kIoError if another process writes for longer than `patience_ms`.
  static Ledger open(const std::filesystem::path& path, admission::SigningKey key,
                     std::optional<std::string> last_seen = {}, int patience_ms = kPatience);
  static constexpr int kPatience = 10'000;

  // let_go: lets other processes write until refresh() or the next operation. That call reads the
  // leaves of the others and rejects a ledger that no longer extends note().
  void let_go();
  void refresh();

  // Reads the file again; throws kMalformed, as open() does, if it does not extend this note.
  void require_extends(std::string note) { reload(std::move(note)); }

  const State& state() const { return state_; }
  const std::string& note() const { return note_; }  // the last checkpoint: keep a copy elsewhere

  // A contribution that passed the gate.
  struct Contribution {
    Bytes descriptor;   // canonical bytes
    Bytes attestation;  // detached COSE_Sign1 over them
    admission::PublicKey key;
    std::uint64_t least_multiplier = 0;  // amplified: see Admission
    bool verified = false;               // the gate has just verified the attestation
  };
  // Records contributions that passed the gate, and per reason the number of those that did not.
  // Verifies attestations that are not verified yet. Throws kInvalidInput for a descriptor that was
  // admitted or withdrawn before.
  void admit(std::span<const Contribution> contributions, const Refusals& refusals = {});

  // Reserves an epoch: one use for every contribution of the classes in `terms` that is neither
  // withdrawn nor ended at `as_of`, whether or not it will be sampled. Call it before the epoch's
  // first step. Fills in run, epoch and as_of of the terms; in a ledger of schema 1 it omits the
  // planned steps. Admissions and rejections for the epoch are part of the same batch: either the
  // whole batch is recorded, once, or nothing.
  // Returns false and does nothing if the epoch was reserved before. Throws kInvalidInput if an
  // epoch is skipped, and as admit().
  bool reserve_epoch(const std::string& run, std::uint64_t epoch, std::uint64_t as_of,
                     std::vector<Terms> terms, std::span<const Contribution> admitted = {},
                     const Refusals& refusals = {});

  // Why withdraw() would reject a withdrawal: it is forged, it is for another ledger, or it is for
  // a contribution that is not in the ledger and no steward signed it. Empty if withdraw() would
  // accept it.
  std::optional<std::string> objection(const Withdrawal& withdrawal);
  // Appends the withdrawals that are not recorded yet and returns their number. Throws
  // kInvalidInput, and appends nothing, if one has an objection().
  std::size_t withdraw(std::span<const Withdrawal> withdrawals);

  // Summarises every contribution that ended at least header.retention seconds before `now`.
  // Returns false if there is no such contribution.
  bool summarise(std::uint64_t now);

  // Appends the record that the model of a run was released with the manifest of this hash.
  void release(const std::string& run, const Digest& manifest);

  // Appends the deletions, all of one model and in order, that are not recorded yet, and returns
  // their number. Throws kInvalidInput if a number is skipped.
  std::size_t record_deletions(std::span<const Deletion> deletions);

  // The position of an entry, and its receipt (receipt.h).
  struct Placed {
    std::uint64_t position;
    Bytes receipt;
  };
  // Finds the entries with these bytes in the file. Throws kInvalidInput for an entry that is not
  // in the ledger.
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
  bool stale_ = false;  // memory may differ from the file
  bool away_ = false;   // other processes may write
};

}  // namespace discreet::ledger
