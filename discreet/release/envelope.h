#pragma once

#include <string>
#include <string_view>

#include "discreet/admission/ed25519.h"
#include "discreet/base/hash.h"
#include "discreet/release/manifest.h"

namespace discreet::release {

// A signed manifest: a DSSE envelope (github.com/secure-systems-lab/dsse) around an in-toto
// statement, which other tools can verify. One line of JSON and a newline:
//   {"payload": base64, "payloadType": "application/vnd.in-toto+json",
//    "signatures": [{"keyid": hexadecimal, "sig": base64}]}
// The signature is Ed25519 over "DSSEv1 28 application/vnd.in-toto+json LENGTH PAYLOAD"; keyid is
// the id of the public key, in hexadecimal. An envelope has exactly one signature.
std::string sign(const Manifest& manifest, const admission::SigningKey& key);

// The SHA-256 of the text, which identifies a release in a ledger.
Digest hash_of(std::string_view envelope);

// Why an envelope is rejected; checked in this order.
enum class EnvelopeFault { kMalformed, kUnknownKey, kBadSignature };
struct Opened {
  std::optional<Manifest> manifest;  // empty if there is a fault
  EnvelopeFault fault = EnvelopeFault::kMalformed;
  std::string problem;  // a sentence
};
// The manifest if `key` signed it. Never throws because of a text's content. The payload is not
// parsed before its signature is verified.
Opened open(std::string_view envelope, const admission::PublicKey& key);

// The manifest of an envelope without verification: for people to read, never for decisions. Throws
// kMalformed.
Manifest read_unverified(std::string_view envelope);

}  // namespace discreet::release
