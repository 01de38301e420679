#include "discreet/ledger/receipt.h"

#include <algorithm>

#include "discreet/admission/cose.h"
#include "discreet/base/cbor.h"
#include "discreet/base/error.h"

namespace discreet::ledger {
namespace {

using cbor::Value;

constexpr int kStructure = 395, kProofs = 396, kRfc9162Sha256 = 1;
constexpr int kInclusion = -1, kConsistency = -2;
constexpr int kClaims = 15, kIssuer = 1, kSubject = 2;  // RFC 9597, RFC 8392

// The claims about the tree whose root is signed.
Value claims(std::string_view origin, std::uint64_t size) {
  return cbor::map({{kIssuer, origin}, {kSubject, std::to_string(size)}});
}

Bytes receipt(const admission::SigningKey& key, std::string_view origin, std::uint64_t size,
              int kind, std::uint64_t first, std::uint64_t second, const Path& path,
              const Digest& root) {
  if (!is_note_name(origin)) invalid_input("receipt", "the origin must be the name of a ledger");
  const Bytes proof =
      cbor::encode(cbor::array({first, second, cbor::array({path.begin(), path.end()})}));
  const auto id = key.public_key().id();
  admission::Sign1 message =
      admission::sign_detached(key,
                               cbor::map({{admission::cose_label::kKeyId, ByteView(id)},
                                          {kClaims, claims(origin, size)},
                                          {kStructure, kRfc9162Sha256}}),
                               root);
  message.unprotected =
      cbor::map({{kProofs, cbor::map({{kind, cbor::array({Value(ByteView(proof))})}})}});
  return admission::encode(message);
}

struct Parsed {
  admission::Sign1 message;
  std::uint64_t first = 0, second = 0;
  Path path;
  std::string origin;  // empty: no claims

  // Whether the signed claims, if there are any, are of a tree of this size.
  bool claims_size(std::uint64_t size) const {
    return origin.empty() || message.protected_header.at(kClaims) == claims(origin, size);
  }
};

// Throws kMalformed or kInvalidInput for anything but a receipt as receipt() makes it.
Parsed parse(ByteView bytes, int kind, const admission::PublicKey& key) {
  Parsed out;
  out.message = admission::decode_sign1(bytes);
  const Value& header = out.message.protected_header;
  const auto id = key.id();
  const Value* signed_claims = header.find(kClaims);
  if (signed_claims) {
    out.origin = signed_claims->at(kIssuer).as_text();
    if (!is_note_name(out.origin)) malformed("receipt", "the issuer must be the name of a ledger");
  }
  if (header.as_map().size() != (signed_claims ? 4 : 3) ||
      header.at(kStructure) != Value(kRfc9162Sha256) ||
      header.at(admission::cose_label::kKeyId) != Value(ByteView(id)))
    malformed("receipt", "the protected header is not that of a receipt by this key");
  if (out.message.payload) malformed("receipt", "the root is not detached");
  const Value& unprotected = out.message.unprotected;
  const Value& proofs = unprotected.at(kProofs);
  const std::vector<Value>& list = proofs.at(kind).as_array();
  if (unprotected.as_map().size() != 1 || proofs.as_map().size() != 1 || list.size() != 1)
    malformed("receipt", "a receipt must have one proof");
  const Value proof = cbor::decode(list[0].as_bytes());
  if (proof.as_array().size() != 3) malformed("receipt", "a proof must have three parts");
  out.first = proof.as_array()[0].as_unsigned();
  out.second = proof.as_array()[1].as_unsigned();
  for (const Value& item : proof.as_array()[2].as_array()) {
    const ByteView hash = item.as_bytes();
    if (hash.size() != 32 || out.path.size() == 64)
      malformed("receipt", "the path does not consist of 32-byte hashes");
    std::copy(hash.begin(), hash.end(), out.path.emplace_back().begin());
  }
  return out;
}

bool or_false(const auto& check) {
  try {
    return check();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIoError) throw;
    return false;
  }
}

}  // namespace

Bytes inclusion_receipt(const admission::SigningKey& key, std::string_view origin,
                        std::uint64_t size, std::uint64_t index, const Path& path,
                        const Digest& root) {
  return receipt(key, origin, size, kInclusion, size, index, path, root);
}

Bytes consistency_receipt(const admission::SigningKey& key, std::string_view origin,
                          std::uint64_t size1, std::uint64_t size2, const Path& path,
                          const Digest& root2) {
  return receipt(key, origin, size2, kConsistency, size1, size2, path, root2);
}

bool verify_inclusion_receipt(ByteView bytes, ByteView leaf, const admission::PublicKey& key,
                              Place* place) {
  return or_false([&] {
    const Parsed found = parse(bytes, kInclusion, key);
    Digest root;
    if (!root_of_inclusion(leaf_hash(leaf), found.second, found.first, found.path, root) ||
        !found.claims_size(found.first) || !admission::verifies(found.message, key, root))
      return false;
    if (place) *place = Place{found.first, found.second, root, found.origin};
    return true;
  });
}

bool verify_consistency_receipt(ByteView bytes, const Checkpoint& then, const Checkpoint& now,
                                const admission::PublicKey& key) {
  return or_false([&] {
    const Parsed found = parse(bytes, kConsistency, key);
    return found.first == then.size && found.second == now.size && then.origin == now.origin &&
           (found.origin.empty() || found.origin == now.origin) && found.claims_size(now.size) &&
           admission::verifies(found.message, key, now.root) &&
           verify_consistency(then.size, then.root, now.size, now.root, found.path);
  });
}

}  // namespace discreet::ledger
