#pragma once

#include "discreet/ledger/entry.h"
#include "discreet/ledger/store.h"

namespace discreet::ledger {

// The leaf of a contribution: everything in it comes from its descriptor, and from the key that
// attested it; and, of an amplified promise, the least multiplier of a use. Throws kMalformed if
// the bytes are no descriptor.
Admission admission_of(const Header& header, std::uint64_t number, const Store::Opening& opening,
                       const RawKey& contributor, std::uint64_t least_multiplier = 0);

// Throws kMalformed unless the leaf, whose bytes are `content`, is the one of this descriptor and
// attestation.
void require_opens(const Admission& leaf, ByteView content, const Store::Opening& opening,
                   const Header& header);

// Whether `key` signed the attestation.
bool attested(const Store::Opening& opening, const admission::PublicKey& key);

}  // namespace discreet::ledger
