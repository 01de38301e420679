#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "discreet/random/key.h"
#include "discreet/run/trace.h"

// `trace.seal`: the position of the trace when the run started, continued or ended, with an
// HMAC-SHA-256 under a key derived from the run's secret (stream "trace seal"). The chain of the
// trace proves that its lines belong together; the seal proves that the run wrote them. The header
// contains the hash of the configuration, and `run_end` the SHA-256 of the model, so the seal of a
// finished run binds all three: anyone who can write to the directory but cannot read `secret.key`
// cannot change any of them unnoticed. They can restore an earlier sealed state of the same run as
// a whole; only a digest of the last line kept elsewhere reveals that.
//
// The seal of a run with a ledger also contains the ledger's signed note of that time: the ledger
// and RUN/ledger.note cannot be rolled back to before it.
//
// One line: "discreet-seal-1 LINES BYTES HEAD MAC", or "discreet-seal-2 LINES BYTES HEAD NOTE MAC"
// with a note; digests and note in hexadecimal. The MAC is over the text before it.
namespace discreet::run {

inline constexpr const char* kSealFile = "trace.seal";

struct Seal {
  TracePosition at;
  std::string ledger_note;  // empty: no ledger, or sealed by an earlier version
  friend bool operator==(const Seal&, const Seal&) = default;
};

// Replaces RUN/trace.seal atomically. The trace must be on disk up to `seal.at`.
void write_seal(const std::filesystem::path& run, const Seal& seal, const random::Key& secret);

// The content of RUN/trace.seal, if `trace`, the lines from the first on, passes through its
// position; empty if there is no such file. Throws kMalformed if it was sealed with another secret
// or altered, or if lines of the trace up to the position were changed or removed.
std::optional<Seal> open_seal(const std::filesystem::path& run, const random::Key& secret,
                              std::span<const TraceLine> trace);

// The files beside the trace. Read them before the trace: a run under way makes the trace longer,
// and its seal and count never run ahead of it.
struct SealFiles {
  std::optional<Seal> seal;              // its MAC holds; the trace is not compared yet
  std::optional<std::uint64_t> counted;  // by trace.steps
  std::string why_not;                   // a clause, if there is no seal
};

// secure: the value in the run's configuration; the key of an insecure run is public and binds
// nothing. secret: the key, kept elsewhere; by default RUN/secret.key, which must belong to this
// user, because anyone who writes to the directory can put their own key there. If the key or seal
// is absent or unreadable, the result has no seal. Throws kMalformed if the file does not contain a
// key, or if the seal or the count was altered.
SealFiles read_seal(const std::filesystem::path& run, bool secure,
                    const std::optional<std::filesystem::path>& secret = std::nullopt);

// The result of checking the seal of a run directory.
struct SealCheck {
  bool verified = false;
  std::string why_not;      // a clause, if not verified; independent of the records
  std::uint64_t lines = 0;  // number of bound lines of the trace
  std::string ledger_note;  // as in Seal; empty unless verified
  bool is_counted = false;  // trace.steps exists and matches the number of steps in the trace
};

// trace: the lines that the caller uses, from the first on. Never read the file again for this:
// anyone who writes to the directory could show one trace to the caller and another to the check.
// Throws kMalformed, as open_seal().
SealCheck check_seal(const SealFiles& files, std::span<const TraceLine> trace);

}  // namespace discreet::run
