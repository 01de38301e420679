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
// One line: "discreet-seal-1 LINES BYTES HEAD MAC", digests in hexadecimal. The MAC is over the
// text before it.
namespace discreet::run {

inline constexpr const char* kSealFile = "trace.seal";

// Replaces RUN/trace.seal, atomically. The trace must be on the disk up to `at`.
void write_seal(const std::filesystem::path& run, const TracePosition& at,
                const random::Key& secret);

// The position that RUN/trace.seal binds, if the trace passes through it; none if there is no such
// file. Throws kMalformed if it was sealed with another secret or altered, or if lines of the trace
// up to the position were changed or removed.
std::optional<TracePosition> open_seal(const std::filesystem::path& run, const random::Key& secret);

// What a reader of a run directory learns from its seal.
struct SealCheck {
  bool verified = false;
  std::string why_not;      // a clause, if it is not; the same whatever the records are
  std::uint64_t lines = 0;  // of the trace, that are bound
};

// secure: of the run's configuration; the key of other runs is public, and binds nothing.
// secret: the key, kept elsewhere; by default RUN/secret.key, which must belong to this user:
// anyone who writes to the directory can put a key of their own there. A key or seal that is absent
// or cannot be read is "not verified"; throws kMalformed as open_seal() if they contradict the
// trace.
SealCheck check_seal(const std::filesystem::path& run, bool secure,
                     const std::optional<std::filesystem::path>& secret = std::nullopt);

}  // namespace discreet::run
