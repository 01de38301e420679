#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "discreet/admission/ed25519.h"
#include "discreet/ledger/merkle.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/state.h"
#include "discreet/ledger/store.h"

namespace discreet::ledger {

// Verifies that every leaf of a ledger is as its signer signed it, and that the ledger follows the
// rules of FORMAT.md. Needs only the file: no payload, no policy file, no run.

struct VerifyOptions {
  // The expected key. Without it, the key that the header declares is used: then the file is
  // consistent with itself, but its owner is not established.
  std::optional<LedgerKey> key;
  // An earlier note that the ledger must extend.
  std::optional<std::string> checkpoint;
  // Verify the signature of every attestation in the file (about 6,000 per second).
  bool attestations = true;
  std::function<void(std::uint64_t leaves)> progress;  // called from time to time; may be empty
};

struct Verification {
  bool ok = false;
  // If not: what is wrong, and the first leaf known to be affected.
  //   file       not a sound database, or not a ledger
  //   entry      a leaf is missing or malformed, or violates a rule
  //   tree       the leaves up to a checkpoint are not those that were signed
  //   signature  a note or attestation is not signed by the key it names
  //   unsigned   leaves follow the last checkpoint
  //   rollback   an earlier checkpoint covers more leaves than there are
  //   fork       an earlier checkpoint covers other leaves
  std::string kind;
  std::string problem;
  std::optional<std::uint64_t> entry;

  std::uint64_t size = 0;  // leaves read
  Digest root{};
  std::string note;  // the last one that was verified
  std::optional<Header> header;
  State::Counts counts;
  std::uint64_t histories = 0;         // number of distinct spends recomputed
  std::uint64_t attestations = 0;      // number of verified signatures of contributors
  std::vector<ClassTotal> classes;     // of the contributions still in the file
  std::vector<ClassTotal> summarised;  // from the last summary: cannot be recomputed any more
};

// Never throws because of a file's content. Throws kIoError if the file cannot be read, and
// kMalformed if the option `checkpoint` is not a note.
Verification verify(const std::filesystem::path& path, const VerifyOptions& options = {});
// The same of the snapshot that a reader has begun, so that what it reads then is what was
// verified.
Verification verify(Store& store, const VerifyOptions& options = {});

// The result of reading a ledger, for verify() and the writer.
struct Loaded {
  State state;
  Frontier frontier;
  std::string note;
};
// Reads all leaves up to the last note (`to_last_note`) or to the end. Throws Error at the first
// problem, and describes the problem and its position in `where`.
Loaded load(Store& store, const VerifyOptions& options, bool to_last_note, Verification& where);

// The hash of a range of leaves, read from the file: for single proofs of large ledgers.
RangeHash range_hash(Store& store);

}  // namespace discreet::ledger
