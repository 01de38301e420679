#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "discreet/admission/ed25519.h"
#include "discreet/base/bytes.h"
#include "discreet/ledger/merkle.h"
#include "discreet/ledger/note.h"

namespace discreet::ledger {

// Proves that a leaf is in a signed tree, to a reader who has only the leaf: a COSE receipt of
// inclusion (RFC 9942), which other tools can verify. A COSE_Sign1 with
//   protected    {1: -8, 4: key id, 15: {1: origin, 2: size as text}, 395: 1}
//                EdDSA; CWT claims (RFC 9597): issuer and subject; RFC9162_SHA256
//   unprotected  {396: {-1: [bstr .cbor [size, index, [path]]]}}
//   payload      nil; the root of the tree of `size` leaves is signed
// The bytes of the leaf are not included. A tree of one leaf has no receipt; a ledger has at least
// two leaves. Receipts of earlier versions have no claims (15) and are accepted. The reader must
// then know from elsewhere the size, and to which ledger of the key they belong. Throws
// kInvalidInput if the origin is not a valid name (note.h).
Bytes inclusion_receipt(const admission::SigningKey& key, std::string_view origin,
                        std::uint64_t size, std::uint64_t index, const Path& path,
                        const Digest& root);

// The same for consistency: {396: {-2: [bstr .cbor [size1, size2, [path]]]}}, over the later root.
Bytes consistency_receipt(const admission::SigningKey& key, std::string_view origin,
                          std::uint64_t size1, std::uint64_t size2, const Path& path,
                          const Digest& root2);

// The position of a leaf according to a receipt. Two trees of equal size differ only in their
// roots: compare `root` with that of a checkpoint you know.
struct Place {
  std::uint64_t size = 0, index = 0;
  Digest root{};
  std::string origin;  // of the ledger; empty in receipts of earlier versions
};
// True if the receipt proves that `leaf` (its bytes) is in a tree whose root `key` signed; its
// position is written to `place`. False for a receipt of another leaf or key, and for bytes that
// are not a receipt.
bool verify_inclusion_receipt(ByteView receipt, ByteView leaf, const admission::PublicKey& key,
                              Place* place = nullptr);
// True if the tree of `now` extends that of `then` and both match the sizes, roots and origin of
// the receipt.
bool verify_consistency_receipt(ByteView receipt, const Checkpoint& then, const Checkpoint& now,
                                const admission::PublicKey& key);

}  // namespace discreet::ledger
