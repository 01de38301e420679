#pragma once

#include "discreet/ledger/entry.h"
#include "discreet/ledger/store.h"

namespace discreet::ledger {

// The leaf of a contribution. It follows from the descriptor, the key that attested it and, for an
// amplified promise, the smallest multiplier of a use. Throws kMalformed if the bytes do not encode
// a descriptor.
struct Opened {
  Admission leaf;
  std::uint64_t not_before;  // of the descriptor; not in the leaf
};
Opened admission_of(const Header& header, std::uint64_t number, const Store::Opening& opening,
                    const RawKey& contributor, std::uint64_t least_multiplier = 0);

// The time from which the descriptor is valid. Throws kMalformed unless the leaf, with the bytes
// `content`, belongs to this descriptor and attestation.
std::uint64_t require_opens(const Admission& leaf, ByteView content, const Store::Opening& opening,
                            const Header& header);

// True if `key` signed the attestation.
bool attested(const Store::Opening& opening, const admission::PublicKey& key);

}  // namespace discreet::ledger
