#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "discreet/random/key.h"
#include "discreet/run/trace.h"

// `trace.seal`: where the trace stood when the run started, continued or ended, with an
// HMAC-SHA-256 under a key derived from the run's secret (stream "trace seal"). The chain of the
// trace says that its lines belong together; the seal says that the run wrote them. The header
// names the hash of the configuration and `run_end` the SHA-256 of the model, so the seal of an
// ended run binds all three: anyone who writes to the directory but cannot read `secret.key` can
// change none of them unnoticed. They can put back an earlier sealed state of the same run as a
// whole; only a digest of the last line kept elsewhere shows that.
//
// The seal of a run with a ledger also holds the ledger's signed note of that time: ledger and
// RUN/ledger.note cannot be put back to before it.
//
// One line: "discreet-seal-1 LINES BYTES HEAD MAC", or "discreet-seal-2 LINES BYTES HEAD NOTE MAC"
// with a note; digests and note in hexadecimal. The MAC is over the text before it.
namespace discreet::run {

inline constexpr const char* kSealFile = "trace.seal";

struct Seal {
  TracePosition at;
  std::string ledger_note;  // empty: the run has no ledger, or an earlier version sealed it
  friend bool operator==(const Seal&, const Seal&) = default;
};

// Replaces RUN/trace.seal, atomically. The trace must be on the disk up to `seal.at`.
void write_seal(const std::filesystem::path& run, const Seal& seal, const random::Key& secret);

// What RUN/trace.seal binds, if the trace passes through its position; none if there is no such
// file. Throws kMalformed if it was sealed with another secret or altered, or if lines of the trace
// up to the position were changed or removed.
std::optional<Seal> open_seal(const std::filesystem::path& run, const random::Key& secret);

// What a reader of a run directory learns from its seal.
struct SealCheck {
  bool verified = false;
  std::string why_not;      // a clause, if it is not; the same whatever the records are
  std::uint64_t lines = 0;  // of the trace, that are bound
  std::string ledger_note;  // as in Seal; empty unless verified
  bool is_counted = false;  // trace.steps is there, and the trace has as many steps
};

// secure: of the run's configuration; the key of other runs is public, and binds nothing.
// secret: the key, kept elsewhere; by default RUN/secret.key, which must belong to this user:
// anyone who writes to the directory can put a key of their own there. A key or seal that is absent
// or cannot be read is "not verified"; throws kMalformed as open_seal() if they contradict the
// trace.
SealCheck check_seal(const std::filesystem::path& run, bool secure,
                     const std::optional<std::filesystem::path>& secret = std::nullopt);

}  // namespace discreet::run
