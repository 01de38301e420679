#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "discreet/admission/ed25519.h"
#include "discreet/base/bytes.h"
#include "discreet/ledger/note.h"

// Proofs as text, for readers without the ledger and without a COSE library: one JSON object with
//   note       the last signed note of the ledger, of tree_size leaves
//   path       hashes in hexadecimal, in the order of RFC 9162
// and, for a proof that an entry is present,
//   entry, leaf_hash, and leaf (its bytes) unless it was summarised;
// or, for a proof that the ledger extends an earlier state of itself,
//   from_size.
namespace discreet::ledger {

// Both functions read the leaves of the file once. They throw kInvalidInput if the entry or size
// does not exist, or if the ledger was never signed.
std::string prove_entry(const std::filesystem::path& ledger, std::uint64_t entry);
std::string prove_consistency(const std::filesystem::path& ledger, std::uint64_t from_size);

struct ProofVerdict {
  bool ok = false;
  std::string problem;                     // if it does not hold
  std::string origin;                      // of the ledger
  std::uint64_t size = 0;                  // leaves of the signed tree
  std::optional<std::uint64_t> entry;      // of a proof of presence
  std::optional<Bytes> leaf;               // its bytes, if the proof has them
  std::optional<std::uint64_t> from_size;  // of a proof of consistency
};
// Checks, with the ledger's key, a proof of the forms above, a line of `discreet ledger export` (a
// receipt of RFC 9942 with its leaf), or the receipt of a deletion. Each may also state origin,
// public_key, leaf_hash and tree_size, and with the leaf of a deletion its plain members and the
// opening of its commitment: all must agree with what was signed, with or without a leaf. Another
// member is not proven, so a text with one does not hold; the problem names it. A proof of
// consistency needs the earlier note that it extends. Throws kInvalidInput if that note is missing,
// or if the text is not a proof or has a duplicate name; kMalformed if the earlier note is
// malformed.
ProofVerdict verify_proof(std::string_view json, const LedgerKey& key,
                          const std::optional<std::string>& earlier_note = {});

}  // namespace discreet::ledger
