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

// Whether a ledger is what its signer signed, leaf by leaf, and keeps the rules of FORMAT.md. Needs
// the file and nothing else: no payload, no policy file, no run.

struct VerifyOptions {
  // The key the reader expects. Without it the key is the one the header declares: then the file is
  // consistent with itself, but whose it is remains open.
  std::optional<admission::PublicKey> key;
  // A note from an earlier day: the ledger must extend what it says.
  std::optional<std::string> checkpoint;
  // Verify the signature of every attestation that the file still holds (some 6,000 a second).
  bool attestations = true;
  std::function<void(std::uint64_t leaves)> progress;  // now and then; may be empty
};

struct Verification {
  bool ok = false;
  // If not: what is wrong, and the first leaf of which it is known.
  //   file       no sound database, or not of a ledger
  //   entry      a leaf is missing or malformed, or breaks a rule
  //   tree       the leaves up to a checkpoint are not those that were signed
  //   signature  a note or attestation is not signed by whom it names
  //   unsigned   leaves follow the last checkpoint
  //   rollback   an earlier checkpoint covers more leaves than there are
  //   fork       an earlier checkpoint is of other leaves
  std::string kind;
  std::string problem;
  std::optional<std::uint64_t> entry;

  std::uint64_t size = 0;  // leaves read
  Digest root{};
  std::string note;  // the last one that verified
  std::optional<Header> header;
  State::Counts counts;
  std::uint64_t histories = 0;         // different spends that were recomputed
  std::uint64_t attestations = 0;      // signatures of contributors that were verified
  std::vector<ClassTotal> classes;     // of the contributions still in the file
  std::vector<ClassTotal> summarised;  // as the last summary says: can no longer be recomputed
};

// Never throws for what a file contains; kIoError if it cannot be read, kMalformed if the option
// `checkpoint` is no note.
Verification verify(const std::filesystem::path& path, const VerifyOptions& options = {});

// What verify() and the writer read a ledger by.
struct Loaded {
  State state;
  Frontier frontier;
  std::string note;
};
// Reads everything up to the last note (`to_last_note`) or to the end. Throws Error at the first
// thing wrong, and says in `where` what and where.
Loaded load(Store& store, const VerifyOptions& options, bool to_last_note, Verification& where);

// The hash of a range of leaves, read from the file: for single proofs of large ledgers.
RangeHash range_hash(Store& store);

}  // namespace discreet::ledger
