#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "discreet/base/hash.h"

struct sqlite3;

namespace discreet::admission {

// How often each contribution was used, over all runs of a corpus: the hard cap of a promise.
//
// Confidential: one file of mode 0600, which nothing exports. It is never part of a ledger, report
// or release; what is refused for want of uses is not published either.
//
// A use is reserved, durably, before anything derived from it leaves the process. A crash between
// reservation and use counts as used. A step that is executed again, by the same run with the same
// number, finds its reservation and reserves nothing: such a step may only be repeated if it
// releases the same bits (same noise, same batch); a run that draws fresh noise takes a fresh step
// number or run identity.
//
// SQLite with a rollback journal and synchronous=EXTRA (the journal's removal is flushed too); one
// writer at a time, of any number of processes on one machine.
class UseStore {
 public:
  struct Claim {
    Digest descriptor;       // its hash
    std::uint64_t uses = 1;  // >= 1, in this step
    std::uint64_t cap;       // Resolution::most_uses; the same whenever it is claimed
  };

  // Opens the store or makes it. Throws kIoError if it cannot be opened or written, others may read
  // it, or it is in use for more than `patience_ms`; kMalformed if it is no such store.
  explicit UseStore(const std::filesystem::path& path, int patience_ms = 10'000);
  ~UseStore();
  UseStore(UseStore&&) noexcept;

  // Reserves for one step of one run; one answer per claim, in order: 1 if the uses are reserved, 0
  // if they would exceed the cap (then none of that claim are). When it returns, the answers are on
  // the disk. If it throws, nothing was reserved.
  //   run    identity of the run, as random as a key
  //   step   < 2^63: the step, or the epoch, in whatever unit the run reserves
  // kInvalidInput for a descriptor twice in one call, zero uses, a cap beyond 2^32, or a claim that
  // differs from an earlier one: another cap, or other uses in the same step.
  std::vector<std::uint8_t> reserve(const Digest& run, std::uint64_t step,
                                    std::span<const Claim> claims);

  // Uses reserved so far, over all runs.
  std::uint64_t used(const Digest& descriptor) const;

 private:
  struct Close {
    void operator()(sqlite3* database) const noexcept;
  };
  std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace discreet::admission
