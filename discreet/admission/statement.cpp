#include "discreet/admission/statement.h"

#include <fmt/core.h>

#include <algorithm>

#include "discreet/admission/cose.h"
#include "discreet/base/cbor.h"
#include "discreet/base/error.h"

namespace discreet::admission {
namespace {

constexpr std::string_view kRotation = "discreet.rotation.v1";
constexpr std::string_view kRevocation = "discreet.revocation.v1";

constexpr const char* kOperator = "statement";

void check_time(Instant time) {
  if (time < 0 || time >= kEndOfTime)
    invalid_input(kOperator, "the time must be within 1970 to 9999");
}

void require_signature(const PublicKey& key, ByteView signature, ByteView payload) {
  const KeyedSignature read = decode_signature(signature);
  if (read.key_id != key.id() || !verifies(read.message, key, payload))
    malformed(kOperator, "the signature by key {} does not verify", to_hex(key.id()));
}

void read_one(ByteView bytes, Statements& out) {
  const cbor::Value whole = cbor::decode(bytes);
  const auto& items = whole.as_array();
  if (items.size() < 2) malformed(kOperator, "a statement must be a payload and its signatures");
  const ByteView payload = items[0].as_bytes();
  const cbor::Value map = cbor::decode(payload);
  if (map.as_map().size() != 4) malformed(kOperator, "a statement must have four entries");
  const std::string_view kind = map.at(0).as_text();
  const PublicKey first = PublicKey::from_bytes(map.at(1).as_bytes());
  const Instant time = map.at(3).as_int64();
  check_time(time);
  if (kind == kRotation) {
    if (items.size() != 3) malformed(kOperator, "a rotation must be signed by both keys");
    const PublicKey second = PublicKey::from_bytes(map.at(2).as_bytes());
    require_signature(first, items[1].as_bytes(), payload);
    require_signature(second, items[2].as_bytes(), payload);
    out.rotations.push_back({first, second, time});
  } else if (kind == kRevocation) {
    if (items.size() != 2) malformed(kOperator, "a revocation must have one signature");
    Revocation revocation{first, {}, time};
    for (const cbor::Value& id : map.at(2).as_array()) {
      KeyId key{};
      if (id.as_bytes().size() != key.size()) malformed(kOperator, "a key id must have 16 bytes");
      std::copy(id.as_bytes().begin(), id.as_bytes().end(), key.begin());
      if (!revocation.keys.empty() && !(revocation.keys.back() < key))
        malformed(kOperator, "key ids must be ascending");
      revocation.keys.push_back(key);
    }
    if (revocation.keys.empty()) malformed(kOperator, "a revocation must name at least one key");
    require_signature(first, items[1].as_bytes(), payload);
    out.revocations.push_back(std::move(revocation));
  } else {
    malformed(kOperator, "it is neither a rotation nor a revocation");
  }
}

}  // namespace

Bytes sign_rotation(const SigningKey& from, const SigningKey& to, Instant time) {
  check_time(time);
  const Bytes payload = cbor::encode(cbor::map({{0, kRotation},
                                                {1, cbor::Value(from.public_key().bytes())},
                                                {2, cbor::Value(to.public_key().bytes())},
                                                {3, time}}));
  return cbor::encode(cbor::array({payload, sign(from, payload), sign(to, payload)}));
}

Bytes sign_revocation(const SigningKey& signer, std::vector<KeyId> keys, Instant time) {
  check_time(time);
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  if (keys.empty()) invalid_input(kOperator, "a revocation must name at least one key");
  std::vector<cbor::Value> ids(keys.begin(), keys.end());
  const Bytes payload = cbor::encode(cbor::map({{0, kRevocation},
                                                {1, cbor::Value(signer.public_key().bytes())},
                                                {2, cbor::array(std::move(ids))},
                                                {3, time}}));
  return cbor::encode(cbor::array({payload, sign(signer, payload)}));
}

Statements decode_statements(const std::vector<Bytes>& signed_statements) {
  Statements out;
  for (std::size_t i = 0; i < signed_statements.size(); ++i) {
    try {
      read_one(signed_statements[i], out);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kIoError) throw;
      malformed(kOperator, "statement {}: {}", i + 1, error.sentence());
    }
  }
  return out;
}

}  // namespace discreet::admission
