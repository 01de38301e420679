#include "discreet/release/envelope.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "discreet/base/error.h"
#include "discreet/base/json_read_impl.h"

namespace discreet::release {
namespace {

using nlohmann::json;

constexpr std::string_view kPayloadType = "application/vnd.in-toto+json";

// DSSE's pre-authentication encoding.
std::string signed_bytes(std::string_view payload) {
  return fmt::format("DSSEv1 {} {} {} {}", kPayloadType.size(), kPayloadType, payload.size(),
                     payload);
}

std::string text_of(std::string_view payload, std::string_view key_id, ByteView signature) {
  return json{{"payload", to_base64(bytes_of(payload))},
              {"payloadType", kPayloadType},
              {"signatures", {{{"keyid", key_id}, {"sig", to_base64(signature)}}}}}
             .dump() +
         "\n";
}

struct Parts {
  std::string payload, key_id;
  Bytes signature;
};

Parts parts_of(std::string_view envelope) {
  if (envelope.size() > 2 * kMostStatementBytes) malformed("release", "the envelope is too long");
  const json outer = try_read_json(envelope);
  Parts out;
  try {
    const Bytes payload = from_base64(outer.at("payload").get_ref<const std::string&>());
    out.payload.assign(payload.begin(), payload.end());
    const json& signature = outer.at("signatures").at(0);
    out.key_id = signature.at("keyid").get<std::string>();
    out.signature = from_base64(signature.at("sig").get_ref<const std::string&>());
    // It must encode to the same bytes: no other member, order, spelling or second signature.
    if (text_of(out.payload, out.key_id, out.signature) == envelope) return out;
  } catch (const json::exception&) {
  }
  malformed("release", "this is not the envelope of a manifest");
  return out;
}

}  // namespace

std::string sign(const Manifest& manifest, const admission::SigningKey& key) {
  const std::string payload = encode(manifest);
  return text_of(payload, to_hex(key.public_key().id()), key.sign(bytes_of(signed_bytes(payload))));
}

Digest hash_of(std::string_view envelope) { return sha256(bytes_of(envelope)); }

Opened open(std::string_view envelope, const admission::PublicKey& key) {
  try {
    const Parts parts = parts_of(envelope);
    if (parts.key_id != to_hex(key.id()))
      return {{},
              EnvelopeFault::kUnknownKey,
              fmt::format("the manifest is not signed by the trusted key {}", to_hex(key.id()))};
    if (!key.verifies(bytes_of(signed_bytes(parts.payload)), parts.signature))
      return {{}, EnvelopeFault::kBadSignature, "the manifest differs from what its key signed"};
    return {decode_statement(parts.payload), {}, {}};
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIoError) throw;
    return {{}, EnvelopeFault::kMalformed, error.sentence()};
  }
}

Manifest read_unverified(std::string_view envelope) {
  return decode_statement(parts_of(envelope).payload);
}

}  // namespace discreet::release
