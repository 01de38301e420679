#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "discreet/admission/ed25519.h"
#include "discreet/base/bytes.h"

// Proofs as text, for whoever has neither the ledger nor a COSE library: one JSON object with
//   note       the last signed note of the ledger, of tree_size leaves
//   path       hashes in hexadecimal, in the order of RFC 9162
// and, that an entry is there,
//   entry, leaf_hash, and leaf (its bytes) unless it was summarised;
// or, that the ledger extends an earlier state of itself,
//   from_size.
namespace discreet::ledger {

// Each reads the leaves of the file once. Throws kInvalidInput if there is no such entry, no such
// size, or the ledger was never signed.
std::string prove_entry(const std::filesystem::path& ledger, std::uint64_t entry);
std::string prove_consistency(const std::filesystem::path& ledger, std::uint64_t from_size);

struct ProofVerdict {
  bool ok = false;
  std::string problem;                     // if not
  std::string origin;                      // of the ledger
  std::uint64_t size = 0;                  // leaves of the signed tree
  std::optional<std::uint64_t> entry;      // of a proof of presence
  std::optional<Bytes> leaf;               // its bytes, if the proof has them
  std::optional<std::uint64_t> from_size;  // of a proof of consistency
};
// Whether a proof of the forms above, or a line of `discreet ledger export` (a receipt of RFC 9942
// with its leaf), holds under the ledger's key. A proof of consistency is about an earlier note,
// which has to be given. Throws kInvalidInput if it is not, or the text is no proof; kMalformed if
// the earlier note is none.
ProofVerdict verify_proof(std::string_view json, const admission::PublicKey& key,
                          const std::optional<std::string>& earlier_note = {});

}  // namespace discreet::ledger
