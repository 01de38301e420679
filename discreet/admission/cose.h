#pragma once

#include <cstdint>
#include <optional>

#include "discreet/admission/ed25519.h"
#include "discreet/base/bytes.h"
#include "discreet/base/cbor.h"

namespace discreet::admission {

// COSE_Sign1 (RFC 9052, section 4.2) with Ed25519:
//   18([protected : bstr, unprotected : map, payload : bstr / nil, signature : bstr])
// over the bytes of ["Signature1", protected, external_aad, payload]. Detached: payload is nil in
// the message, and whoever verifies supplies the bytes.
//
// The strict profile: tag 18; deterministic CBOR also inside `protected`, which is a map and, if
// empty, an empty string; `alg` in the protected header only, -8 (EdDSA) or -19 (Ed25519, RFC
// 9864); no `crit`; no label in both headers; 64 bytes of signature; nothing after the message. We
// emit -8.

inline constexpr std::int64_t kEdDsa = -8;
inline constexpr std::int64_t kEd25519 = -19;
namespace cose_label {
inline constexpr int kAlg = 1, kCrit = 2, kContentType = 3, kKeyId = 4;
}

struct Sign1 {
  cbor::Value protected_header = cbor::map({});  // a map
  cbor::Value unprotected = cbor::map({});       // a map
  std::optional<Bytes> payload;                  // none: detached
  Signature signature{};
};

// Throws kMalformed for bytes outside the profile. What other labels mean is the caller's business.
Sign1 decode_sign1(ByteView bytes);
Bytes encode(const Sign1& message);

// The bytes that are signed.
Bytes signature_input(const Sign1& message, ByteView payload, ByteView external_aad = {});

// Signs `payload`, detached. `protected_header` must not have `alg`: it is added as -8.
Sign1 sign_detached(const SigningKey& key, const cbor::Value& protected_header, ByteView payload);
bool verifies(const Sign1& message, const PublicKey& key, ByteView payload,
              ByteView external_aad = {});

// The kind of message this project signs: detached, protected exactly {alg, kid} with the 16 bytes
// of the key's id, unprotected empty.
struct KeyedSignature {
  KeyId key_id{};
  Sign1 message;
};
Bytes sign(const SigningKey& key, ByteView payload);
// Throws kMalformed for any other message.
KeyedSignature decode_signature(ByteView bytes);

}  // namespace discreet::admission
