#include "discreet/admission/cose.h"

#include <algorithm>
#include <utility>

#include "discreet/base/error.h"

namespace discreet::admission {
namespace {

constexpr std::uint64_t kSign1Tag = 18;

constexpr const char* kOperator = "COSE_Sign1";

Bytes protected_bytes(const cbor::Value& header) {
  return header.as_map().empty() ? Bytes{} : cbor::encode(header);
}

void check_headers(const Sign1& message) {
  const cbor::Value* alg = message.protected_header.find(cose_label::kAlg);
  if (alg == nullptr) malformed(kOperator, "the protected header has no alg");
  if (*alg != cbor::Value(kEdDsa) && *alg != cbor::Value(kEd25519))
    malformed(kOperator, "alg is neither EdDSA (-8) nor Ed25519 (-19)");
  for (const cbor::Entry& entry : message.unprotected.as_map()) {
    if (entry.key == cbor::Value(cose_label::kAlg))
      malformed(kOperator, "alg is in the unprotected header, which is not signed");
    if (message.protected_header.find(entry.key) != nullptr)
      malformed(kOperator, "a label is in both headers");
    if (entry.key == cbor::Value(cose_label::kCrit)) malformed(kOperator, "crit is not supported");
  }
  if (message.protected_header.find(cose_label::kCrit) != nullptr)
    malformed(kOperator, "crit is not supported");
}

}  // namespace

Sign1 decode_sign1(ByteView bytes) {
  const cbor::Value whole = cbor::decode(bytes);
  if (whole.type() != cbor::Type::kTag || whole.tag_number() != kSign1Tag ||
      whole.tag_content().type() != cbor::Type::kArray ||
      whole.tag_content().as_array().size() != 4)
    malformed(kOperator, "it is not a COSE_Sign1: tag 18 around four items");
  const auto& items = whole.tag_content().as_array();
  if (items[0].type() != cbor::Type::kBytes || items[1].type() != cbor::Type::kMap ||
      (items[2].type() != cbor::Type::kBytes && !items[2].is_null()) ||
      items[3].type() != cbor::Type::kBytes)
    malformed(kOperator, "its items must be bytes, a map, bytes or nil, and bytes");
  Sign1 message;
  const ByteView header = items[0].as_bytes();
  if (!header.empty()) {
    message.protected_header = cbor::decode(header);
    if (message.protected_header.type() != cbor::Type::kMap ||
        message.protected_header.as_map().empty())
      malformed(
          kOperator,
          "the protected header is not a map, or is an empty map instead of the empty string");
  }
  message.unprotected = items[1];
  if (!items[2].is_null()) {
    const ByteView payload = items[2].as_bytes();
    message.payload = Bytes(payload.begin(), payload.end());
  }
  const ByteView signature = items[3].as_bytes();
  if (signature.size() != message.signature.size())
    malformed(kOperator, "the signature has {} bytes; expected 64",
              std::to_string(signature.size()));
  std::copy(signature.begin(), signature.end(), message.signature.begin());
  check_headers(message);
  return message;
}

Bytes encode(const Sign1& message) {
  return cbor::encode(
      cbor::tag(kSign1Tag,
                cbor::array({protected_bytes(message.protected_header), message.unprotected,
                             message.payload ? cbor::Value(*message.payload) : cbor::Value(nullptr),
                             cbor::Value(message.signature)})));
}

Bytes signature_input(const Sign1& message, ByteView payload, ByteView external_aad) {
  return cbor::encode(cbor::array({"Signature1", protected_bytes(message.protected_header),
                                   cbor::Value(external_aad), cbor::Value(payload)}));
}

Sign1 sign_detached(const SigningKey& key, const cbor::Value& protected_header, ByteView payload) {
  std::vector<cbor::Entry> entries = protected_header.as_map();
  entries.push_back({cose_label::kAlg, kEdDsa});
  Sign1 message;
  message.protected_header = cbor::map(std::move(entries));
  message.signature = key.sign(signature_input(message, payload));
  return message;
}

bool verifies(const Sign1& message, const PublicKey& key, ByteView payload, ByteView external_aad) {
  return key.verifies(signature_input(message, payload, external_aad), message.signature);
}

Bytes sign(const SigningKey& key, ByteView payload) {
  return encode(sign_detached(
      key, cbor::map({{cose_label::kKeyId, cbor::Value(key.public_key().id())}}), payload));
}

KeyedSignature decode_signature(ByteView bytes) {
  KeyedSignature out;
  out.message = decode_sign1(bytes);
  const cbor::Value* kid = out.message.protected_header.find(cose_label::kKeyId);
  if (kid == nullptr || out.message.protected_header.as_map().size() != 2 ||
      kid->type() != cbor::Type::kBytes || kid->as_bytes().size() != out.key_id.size())
    malformed(kOperator, "the protected header must contain exactly alg and a kid of 16 bytes");
  if (!out.message.unprotected.as_map().empty())
    malformed(kOperator, "the unprotected header is not empty");
  if (out.message.payload) malformed(kOperator, "the payload is not detached");
  const ByteView id = kid->as_bytes();
  std::copy(id.begin(), id.end(), out.key_id.begin());
  return out;
}

}  // namespace discreet::admission
