#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/admission/ed25519.h"
#include "discreet/ledger/entry.h"

namespace discreet::ledger {

// A withdrawal as its signer makes it, far from the ledger: it names the ledger by its origin and
// the contribution by the hash of its descriptor. Throws kInvalidInput for an origin that is no
// name, or a reason that is not UTF-8 or longer than 256 bytes.
Withdrawal sign_withdrawal(const admission::SigningKey& key, std::string_view origin,
                           const Digest& descriptor, std::string reason, std::uint64_t time);

// A deletion-event file: one JSON object a line with the members descriptor, reason, time,
// public_key and signature; bytes in hexadecimal. read throws kInvalidInput with the number of a
// line that is something else. Whether a signature is right is the ledger's business; reading a
// file twice withdraws once (Ledger::withdraw).
std::string write_deletion_event(const Withdrawal& withdrawal);  // one line, with its newline
std::vector<Withdrawal> read_deletion_events(std::string_view lines);

// What a contributor takes home after a withdrawal, as JSON: the header, the admission with its
// opened descriptor, every use with its terms, the withdrawal and the releases of runs that had
// used it (made again later, also those of later), each as leaf and receipt; and a proof that the
// tree in which the withdrawal stands extends the one in which the admission was first signed.
// Throws kInvalidInput if the descriptor is not withdrawn.
std::string withdrawal_bundle(const std::filesystem::path& ledger, const admission::SigningKey& key,
                              const Digest& descriptor);

struct BundleVerdict {
  bool ok = false;
  std::string problem;
  std::string origin;
  std::string descriptor;  // hexadecimal
  std::uint64_t uses = 0, releases = 0;
  std::vector<Release> affected;  // the releases, in the order of the ledger
  // Millionths: of the plans of its runs; in a ledger of schema 1 of all uses that it allowed.
  std::uint64_t spend = 0;
  bool has_plans = true;  // of the ledger (schema 2)
};
// Needs no ledger: whether every part was in the signed tree and says what it should. That no
// further use exists is for whoever holds the ledger to verify: a Merkle tree proves presence only.
// key: the ledger's, known from elsewhere; without it the bundle's own is taken.
BundleVerdict verify_bundle(std::string_view json, const std::optional<admission::PublicKey>& key);

}  // namespace discreet::ledger
