#pragma once

#include <string>
#include <string_view>

#include "discreet/admission/ed25519.h"
#include "discreet/base/hash.h"
#include "discreet/release/manifest.h"

namespace discreet::release {

// A manifest with its signature: a DSSE envelope (github.com/secure-systems-lab/dsse) around an
// in-toto statement, which other tools verify too. One line of JSON and a newline:
//   {"payload": base64, "payloadType": "application/vnd.in-toto+json",
//    "signatures": [{"keyid": hexadecimal, "sig": base64}]}
// The signature is Ed25519 over "DSSEv1 28 application/vnd.in-toto+json LENGTH PAYLOAD"; keyid is
// the id of the public key, in hexadecimal. We write one signature and take no other number.
std::string sign(const Manifest& manifest, const admission::SigningKey& key);

// The SHA-256 of the text: how a ledger names a release.
Digest hash_of(std::string_view envelope);

// Why an envelope is not taken; in this order.
enum class EnvelopeFault { kMalformed, kUnknownKey, kBadSignature };
struct Opened {
  std::optional<Manifest> manifest;  // none if there is a fault
  EnvelopeFault fault = EnvelopeFault::kMalformed;
  std::string problem;  // a sentence
};
// The manifest that `key` signed. Never throws for what a text contains. Nothing of the payload is
// read before its signature holds.
Opened open(std::string_view envelope, const admission::PublicKey& key);

// The manifest of an envelope, whoever signed it: for people to read, never to decide by. Throws
// kMalformed.
Manifest read_unverified(std::string_view envelope);

}  // namespace discreet::release
