#include "discreet/admission/descriptor.h"

#include <fmt/core.h>
#include <openssl/rand.h>

#include <algorithm>

#include "discreet/admission/cose.h"
#include "discreet/base/cbor.h"
#include "discreet/base/error.h"

namespace discreet::admission {
namespace {

constexpr std::string_view kSchema = "discreet.descriptor.v1";

// Why the descriptor is invalid; empty if it is valid.
std::string problem(const Descriptor& d) {
  const auto scaled = [](const Scaled& x) { return x.units >= 1 && x.units <= Scaled::kMost; };
  if (d.contributor.empty() || d.contributor.size() > 256)
    return "the contributor must have 1 to 256 bytes";
  if (d.data_class.empty() || d.data_class.size() > 64 ||
      d.data_class.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-.") !=
          std::string::npos)
    return "the data class must be 1 to 64 of a-z, 0-9, '_', '-' and '.'";
  if (!scaled(d.clip_norm)) return "the clip norm must be in [1e-9, 9007199]";
  if (!scaled(d.noise_multiplier)) return "the noise multiplier must be in [1e-9, 9007199]";
  if (d.occurrences == 0) return "the occurrences must be at least 1";
  if (d.promise != Promise::kEveryPattern && d.promise != Promise::kAmplified)
    return "the promise must be 0 or 1";
  if (d.not_before < 0 || d.not_after >= kEndOfTime || d.not_before >= d.not_after)
    return "the validity must start before it ends, within 1970 to 9999";
  if (d.adapter.size() > 256) return "the adapter must have at most 256 bytes";
  if (d.corpus.size() > 256) return "the corpus must have at most 256 bytes";
  return {};
}

constexpr const char* kOperator = "decode_descriptor";

template <std::size_t N>
std::array<std::uint8_t, N> fixed(const cbor::Value& value) {
  const ByteView bytes = value.as_bytes();
  if (bytes.size() != N) malformed(kOperator, "found {} bytes; expected {}", bytes.size(), N);
  std::array<std::uint8_t, N> out;
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return out;
}

}  // namespace

std::array<std::uint8_t, 32> fresh_nonce() {
  std::array<std::uint8_t, 32> nonce;
  if (RAND_bytes(nonce.data(), static_cast<int>(nonce.size())) != 1)
    io_error("fresh_nonce", "the operating system provided no random bytes");
  return nonce;
}

Bytes encode(const Descriptor& d) {
  if (const std::string bad = problem(d); !bad.empty()) invalid_input("Descriptor", "{}", bad);
  std::vector<cbor::Entry> entries = {{0, kSchema},
                                      {1, d.contributor},
                                      {2, d.data_class},
                                      {3, d.clip_norm.units},
                                      {4, d.noise_multiplier.units},
                                      {5, d.occurrences},
                                      {6, static_cast<std::uint8_t>(d.promise)},
                                      {7, d.not_before},
                                      {8, d.not_after},
                                      {9, cbor::Value(d.content_anchor)},
                                      {10, cbor::Value(d.nonce)}};
  if (!d.adapter.empty()) entries.push_back({11, d.adapter});
  if (!d.corpus.empty()) entries.push_back({12, d.corpus});
  return cbor::encode(cbor::map(std::move(entries)));
}

Descriptor decode_descriptor(ByteView bytes) {
  if (bytes.size() > kMaxDescriptorBytes)
    malformed(kOperator, "a descriptor must have at most {} bytes", kMaxDescriptorBytes);
  const cbor::Value map = cbor::decode(bytes);
  try {
    if (map.at(0).as_text() != kSchema) malformed(kOperator, "it is not a discreet.descriptor.v1");
    Descriptor d;
    d.contributor = map.at(1).as_text();
    d.data_class = map.at(2).as_text();
    d.clip_norm = {map.at(3).as_unsigned()};
    d.noise_multiplier = {map.at(4).as_unsigned()};
    const std::uint64_t occurrences = map.at(5).as_unsigned();
    const std::uint64_t promise = map.at(6).as_unsigned();
    if (occurrences > 0xffffffff) malformed(kOperator, "the occurrences must be below 2^32");
    if (promise > 1) malformed(kOperator, "the promise must be 0 or 1");
    d.occurrences = static_cast<std::uint32_t>(occurrences);
    d.promise = static_cast<Promise>(promise);
    d.not_before = map.at(7).as_int64();
    d.not_after = map.at(8).as_int64();
    d.content_anchor = fixed<32>(map.at(9));
    d.nonce = fixed<32>(map.at(10));
    std::size_t keys = 11;
    const auto optional = [&](int key, const char* name, std::string& out) {
      const cbor::Value* value = map.find(key);
      if (value == nullptr) return;
      out = value->as_text();
      if (out.empty()) malformed(kOperator, "the {} is empty; omit it", name);
      ++keys;
    };
    optional(11, "adapter", d.adapter);
    optional(12, "corpus", d.corpus);
    if (map.as_map().size() != keys) malformed(kOperator, "it has unknown keys");
    if (const std::string bad = problem(d); !bad.empty()) malformed(kOperator, "{}", bad);
    return d;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kMalformed) throw;
    malformed(kOperator, "{}", error.sentence());
  }
}

Digest hash_of(ByteView descriptor_bytes) { return sha256(descriptor_bytes); }

Bytes attest(const SigningKey& key, ByteView descriptor_bytes) {
  decode_descriptor(descriptor_bytes);
  return sign(key, descriptor_bytes);
}

}  // namespace discreet::admission
