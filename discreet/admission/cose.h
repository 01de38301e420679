#pragma once

#include <cstdint>
#include <optional>

#include "discreet/admission/ed25519.h"
#include "discreet/base/bytes.h"
#include "discreet/base/cbor.h"

namespace discreet::admission {

// COSE_Sign1 (RFC 9052, section 4.2) with Ed25519:
//   18([protected : bstr, unprotected : map, payload : bstr / nil, signature : bstr])
// over the bytes of ["Signature1", protected, external_aad, payload]. Detached: the payload is nil
// in the message, and the verifier supplies the bytes.
//
// The strict profile: tag 18; deterministic CBOR, also inside `protected`, which is a map and, if
// empty, an empty string; `alg` only in the protected header, -8 (EdDSA) or -19 (Ed25519, RFC
// 9864); no `crit`; no label in both headers; a signature of 64 bytes; no trailing bytes. This
// library emits -8.

inline constexpr std::int64_t kEdDsa = -8;
inline constexpr std::int64_t kEd25519 = -19;
namespace cose_label {
inline constexpr int kAlg = 1, kCrit = 2, kContentType = 3, kKeyId = 4;
}

struct Sign1 {
  cbor::Value protected_header = cbor::map({});  // a map
  cbor::Value unprotected = cbor::map({});       // a map
  std::optional<Bytes> payload;                  // empty: detached
  Signature signature{};
};

// Throws kMalformed for bytes outside the profile. The caller interprets other labels.
Sign1 decode_sign1(ByteView bytes);
Bytes encode(const Sign1& message);

// The bytes to be signed.
Bytes signature_input(const Sign1& message, ByteView payload, ByteView external_aad = {});

// Signs `payload`, detached. Adds `alg` as -8, so `protected_header` must not contain it.
Sign1 sign_detached(const SigningKey& key, const cbor::Value& protected_header, ByteView payload);
bool verifies(const Sign1& message, const PublicKey& key, ByteView payload,
              ByteView external_aad = {});

// The only kind of message this project signs: detached; the protected header is exactly {alg, kid}
// with the 16 bytes of the key's id; the unprotected header is empty.
struct KeyedSignature {
  KeyId key_id{};
  Sign1 message;
};
Bytes sign(const SigningKey& key, ByteView payload);
// Throws kMalformed for any other message.
KeyedSignature decode_signature(ByteView bytes);

}  // namespace discreet::admission
