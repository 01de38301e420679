#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "discreet/base/hash.h"

namespace discreet {
class Database;
}

namespace discreet::admission {

// The store of uses: counts the uses of each contribution over all runs of a corpus, and so
// enforces the limit k of its promise.
//
// Confidential: one file of mode 0600 that is never exported. It is never part of a ledger, report
// or release. Rejections because of exhausted uses are not published either.
//
// A use is reserved durably before anything derived from it leaves the process. A use that was
// reserved before a crash counts, even if it was never made. If the same run executes the same step
// number again, it finds its reservation and reserves nothing. Repeat such a step only if it
// releases the same bits (same noise, same batch). A run that draws fresh noise must take a fresh
// step number or run identity.
//
// SQLite with a rollback journal and synchronous=EXTRA (the removal of the journal is flushed too);
// one writer at a time, among any number of processes on one machine.
class UseStore {
 public:
  struct Claim {
    Digest descriptor;       // its hash
    std::uint64_t uses = 1;  // >= 1, in this step
    std::uint64_t cap;       // Resolution::most_uses; must be equal in all claims
  };

  // Opens or creates the store. Throws kIoError if it cannot be opened or written, if others may
  // read it, or if it is locked for more than `patience_ms`; kMalformed if it is not such a store.
  explicit UseStore(const std::filesystem::path& path, int patience_ms = 10'000);
  ~UseStore();
  UseStore(UseStore&&) noexcept;

  // Reserves uses for one step of one run. Returns one answer per claim, in order: 1 if the uses
  // are reserved, 0 if they would exceed the cap (then none of that claim are). When it returns,
  // the answers are on disk. If it throws, nothing was reserved.
  //   run    identity of the run, as random as a key
  //   step   < 2^63: the step, or the epoch, in whatever unit the run reserves
  // Throws kInvalidInput for a descriptor that occurs twice in one call, zero uses, a cap beyond
  // 2^32, or a claim that differs from an earlier one: another cap, or other uses in the same step.
  std::vector<std::uint8_t> reserve(const Digest& run, std::uint64_t step,
                                    std::span<const Claim> claims);

  // Copies the current content to a new file. Throws as the constructor.
  void copy_to(const std::filesystem::path& path) const;

  // The number of uses reserved so far, over all runs.
  std::uint64_t used(const Digest& descriptor) const;

 private:
  bool reserve(std::uint64_t run, std::uint64_t step, const Claim& claim);  // in a transaction

  std::unique_ptr<Database> database_;
};

}  // namespace discreet::admission
