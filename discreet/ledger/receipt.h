#pragma once

#include <cstdint>

#include "discreet/admission/ed25519.h"
#include "discreet/base/bytes.h"
#include "discreet/ledger/merkle.h"

namespace discreet::ledger {

// Proof that one leaf is in a signed tree, for whoever has only the leaf: a COSE receipt of
// inclusion (RFC 9942), which other tools verify too. A COSE_Sign1 with
//   protected    {1: -8, 4: key id, 395: 1}      EdDSA, RFC9162_SHA256
//   unprotected  {396: {-1: [bstr .cbor [size, index, [path]]]}}
//   payload      nil; signed is the root of the tree of `size` leaves
// The leaf's bytes are not inside. A tree of one leaf has no receipt; a ledger has two or more.
Bytes inclusion_receipt(const admission::SigningKey& key, std::uint64_t size, std::uint64_t index,
                        const Path& path, const Digest& root);

// The same of consistency: {396: {-2: [bstr .cbor [size1, size2, [path]]]}}, over the later root.
Bytes consistency_receipt(const admission::SigningKey& key, std::uint64_t size1,
                          std::uint64_t size2, const Path& path, const Digest& root2);

// Where a receipt places a leaf.
struct Place {
  std::uint64_t size = 0, index = 0;
};
// Whether the receipt shows that `leaf` (its bytes) is in a tree whose root `key` signed; where, is
// written to `place`. False for a receipt of another leaf or key, and for bytes that are no
// receipt.
bool verify_inclusion_receipt(ByteView receipt, ByteView leaf, const admission::PublicKey& key,
                              Place* place = nullptr);
bool verify_consistency_receipt(ByteView receipt, const Digest& root1, const Digest& root2,
                                const admission::PublicKey& key);

}  // namespace discreet::ledger
