#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "discreet/admission/ed25519.h"
#include "discreet/admission/scaled.h"
#include "discreet/base/bytes.h"
#include "discreet/base/hash.h"

namespace discreet::admission {

// The statement about one contribution that its contributor signs. It contains only the hash of the
// payload and is public.
//
// Its canonical bytes are a deterministic CBOR map with integer keys, without floats:
//    0  "discreet.descriptor.v1": no other object signed by this library starts with it
//    1  contributor       text, 1 to 256 bytes
//    2  data class        text, 1 to 64 of a-z 0-9 _ - .
//    3  clip norm C       in units of 10^-9, 1 to 2^53
//    4  noise multiplier z  in units of 10^-9, 1 to 2^53
//    5  occurrences k     1 to 2^32 - 1
//    6  promise           0 every pattern, 1 amplified
//    7  not before        seconds since 1970, in [0, 253402300800)
//    8  not after         the same; > not before; the window is [not before, not after)
//    9  content anchor    32 bytes: SHA-256 of the payload
//   10  nonce             32 random bytes, so that the hash hides the descriptor: once the
//                         descriptor is deleted, nobody can guess it from its hash
//   11  adapter           text, 1 to 256 bytes; absent if none
//   12  corpus            text, 1 to 256 bytes: the name of the only corpus it is for, which is the
//                         origin of its ledger. Absent in descriptors of earlier versions: such a
//                         descriptor could be replayed in any corpus that trusts its key, so a
//                         policy must accept it by its hash (admission_gate.h)
// Any other key, a missing key or a value out of range is malformed.
//
// resolver.h defines what (C, z, k) promises.
enum class Promise : std::uint8_t {
  kEveryPattern,  // k uses in any pattern cost at most one Gaussian release of multiplier z
  kAmplified,     // the same at the class's delta, for its declared sampler over k steps
};

struct Descriptor {
  std::string contributor;
  std::string data_class;
  Scaled clip_norm;
  Scaled noise_multiplier;
  std::uint32_t occurrences = 1;
  Promise promise = Promise::kEveryPattern;
  Instant not_before = 0;
  Instant not_after = 0;
  Digest content_anchor{};
  std::array<std::uint8_t, 32> nonce{};
  std::string adapter;  // empty: none
  std::string corpus;   // empty: none
  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

inline constexpr std::size_t kMaxDescriptorBytes = 1024;

// 32 bytes from the operating system.
std::array<std::uint8_t, 32> fresh_nonce();

// The canonical bytes. Throws kInvalidInput, naming the field, if a value is out of range.
Bytes encode(const Descriptor& descriptor);
// The descriptor with these canonical bytes. Throws kMalformed for anything else.
Descriptor decode_descriptor(ByteView bytes);
// SHA-256 of the canonical bytes; identifies the contribution in ledgers and anchors.
Digest hash_of(ByteView descriptor_bytes);

// The attestation: a detached COSE_Sign1 over the canonical bytes (cose.h). It needs no policy,
// model or training.
Bytes attest(const SigningKey& key, ByteView descriptor_bytes);

}  // namespace discreet::admission
