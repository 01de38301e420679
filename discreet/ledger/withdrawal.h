#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/admission/ed25519.h"
#include "discreet/ledger/entry.h"
#include "discreet/ledger/note.h"

namespace discreet::ledger {

// A withdrawal signed without access to the ledger: it identifies the ledger by its origin and the
// contribution by the hash of its descriptor. Throws kInvalidInput if the origin is not a valid
// name, or if the reason is not UTF-8 or longer than 256 bytes.
Withdrawal sign_withdrawal(const admission::SigningKey& key, std::string_view origin,
                           const Digest& descriptor, std::string reason, std::uint64_t time);

// A deletion-event file: one JSON object per line with the members descriptor, reason, time,
// public_key and signature; bytes in hexadecimal. read throws kInvalidInput with the number of an
// invalid line. The ledger verifies the signatures; reading a file twice withdraws once
// (Ledger::withdraw).
std::string write_deletion_event(const Withdrawal& withdrawal);  // one line including the newline
std::vector<Withdrawal> read_deletion_events(std::string_view lines);

// The evidence for a contributor after a withdrawal, as JSON. Each part is a leaf with its receipt:
// the header, the admission with its opened descriptor, every use with its terms, the withdrawal,
// and the releases of runs that had used the contribution (up to the time of this call). A further
// part proves that the tree with the withdrawal extends the tree in which the admission was first
// signed. Throws kInvalidInput if the descriptor is not withdrawn.
std::string withdrawal_bundle(const std::filesystem::path& ledger, const admission::SigningKey& key,
                              const Digest& descriptor);

struct BundleVerdict {
  bool ok = false;
  std::string problem;
  std::string origin;
  std::string descriptor;  // hexadecimal
  std::uint64_t uses = 0, releases = 0;
  std::vector<Release> affected;  // the releases, in ledger order
  // Millionths: of the plans of its runs; in a ledger of schema 1, of all uses that it allowed.
  std::uint64_t spend = 0;
  bool has_plans = true;   // the ledger has plans (schema 2)
  std::string public_key;  // of the ledger, hexadecimal
};
// Verifies, without the ledger, that every part was in the signed tree and has the required
// content. Only a reader of the ledger can verify that no further use exists, because a Merkle tree
// proves only presence. key: the key of the ledger, known from elsewhere; without it, the key in
// the bundle is used.
BundleVerdict verify_bundle(std::string_view json, const std::optional<LedgerKey>& key);

}  // namespace discreet::ledger
