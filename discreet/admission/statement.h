#pragma once

#include <vector>

#include "discreet/admission/ed25519.h"
#include "discreet/admission/scaled.h"
#include "discreet/base/bytes.h"

namespace discreet::admission {

// Statements about keys by their owners. A statement is deterministic CBOR, signed like an
// attestation:
//   [payload : bstr, signature : bstr, ...]
// with payload {0: "discreet.rotation.v1", 1: old key, 2: new key, 3: time}, signed by the old key
// and by the new one (to prove possession), or
// {0: "discreet.revocation.v1", 1: key of the signer, 2: [ids, ascending], 3: time}.

// The new key may attest whatever the old one may.
struct Rotation {
  PublicKey from, to;
  Instant time;
};
// These keys may no longer attest anything. Accepted from the policy's authority, or from a key for
// itself.
struct Revocation {
  PublicKey signer;
  std::vector<KeyId> keys;  // ascending, unique, at least one
  Instant time;
};

Bytes sign_rotation(const SigningKey& from, const SigningKey& to, Instant time);
Bytes sign_revocation(const SigningKey& signer, std::vector<KeyId> keys, Instant time);

// A list of statements, each created by sign_.... Every signature is verified here; throws
// kMalformed, naming the position, for one that fails.
struct Statements {
  std::vector<Rotation> rotations;
  std::vector<Revocation> revocations;
};
Statements decode_statements(const std::vector<Bytes>& signed_statements);

}  // namespace discreet::admission
