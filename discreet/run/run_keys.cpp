#include "discreet/run/run_keys.h"

#include <fmt/core.h>
#include <openssl/hmac.h>

#include "discreet/base/error.h"
#include "discreet/config/config_resolve.h"

namespace discreet::run {

Digest data_commitment(const Digest& data, const random::Key& secret) {
  const random::Key key = secret.derive("data commitment");
  Digest out{};
  unsigned int length = 0;
  if (::HMAC(EVP_sha256(), key.secret_bytes().data(), random::Key::kSize, data.data(), data.size(),
             out.data(), &length) == nullptr)
    io_error("train", "OpenSSL could not compute an HMAC");
  return out;
}

random::Key run_key(const random::Key& secret, const Config& resolved, const Digest& data) {
  Sha256 hash;
  hash.update(config_hash(resolved)).update(data);
  return secret.derive("run " + to_hex(hash.finish()));
}

random::Key in_environment(const random::Key& run_key, const cbor::Value& environment) {
  return run_key.derive("environment " + to_hex(sha256(cbor::encode(environment))));
}

std::string_view spelling(random::Algorithm algorithm) noexcept {
  switch (algorithm) {
    case random::Algorithm::kPhilox4x32: return "philox4x32";
    case random::Algorithm::kAes128Ctr: return "aes_128_ctr";
    case random::Algorithm::kChaCha20: return "chacha20";
  }
  return "";
}

RunStreams run_streams(const DpConfig& privacy, random::Key key,
                       const std::optional<std::string>& recorded) {
  if (!privacy.secure)
    return {random::Key::from_seed(privacy.seed), random::Algorithm::kPhilox4x32};
  if (!recorded) {
    const random::Algorithm here = random::Generator::secure(key.derive("probe")).algorithm();
    return {std::move(key), here};
  }
  for (const random::Algorithm algorithm :
       {random::Algorithm::kAes128Ctr, random::Algorithm::kChaCha20})
    if (*recorded == spelling(algorithm)) return {std::move(key), algorithm};
  malformed("trace", "line 1 names the unknown noise generator {}", *recorded);
}

}  // namespace discreet::run
