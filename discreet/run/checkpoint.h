#pragma once

#include <filesystem>
#include <string>

#include "discreet/base/bytes.h"
#include "discreet/base/hash.h"
#include "discreet/random/key.h"
#include "discreet/run/trace.h"

// `checkpoint.cbor`: everything a run needs to continue bit for bit. Confidential: it contains raw
// partial sums. Sealed with an HMAC-SHA-256 under a key derived from the run's secret (stream
// "checkpoint"), so that a foreign, truncated or altered checkpoint is rejected. It contains no
// keys.
namespace discreet::run {

struct Checkpoint {
  std::string specification;  // "UML_OS.DifferentialPrivacy.Apply_v3 2026-02-18"
  Digest config{};            // hash of the resolved configuration
  Digest layout{};            // hash of the model layout
  std::uint64_t step = 0;     // completed optimizer steps
  TracePosition trace;        // the position of the trace
  Bytes mechanism;            // the mechanism's state (canonical CBOR)
  Bytes training;             // model, optimizer and data position of the trainer; may be empty
  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

// The properties of the restoring run; a checkpoint with other properties is rejected.
struct Expected {
  std::string specification;
  Digest config{};
  Digest layout{};
};

// Deterministic CBOR {checkpoint fields}, then the seal: equal checkpoints have equal bytes.
Bytes seal(const Checkpoint& checkpoint, const random::Key& secret);

// Throws kMalformed if the bytes are truncated, altered, or sealed with another run's secret;
// kInvalidInput, naming each difference, for a checkpoint of another specification, configuration
// or model.
Checkpoint open(ByteView bytes, const random::Key& secret, const Expected& expected);

// The same for a file, written atomically with mode 0600.
void write_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint,
                      const random::Key& secret);
Checkpoint read_checkpoint(const std::filesystem::path& path, const random::Key& secret,
                           const Expected& expected);

}  // namespace discreet::run
