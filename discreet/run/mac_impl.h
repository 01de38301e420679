#pragma once

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <string_view>

#include "discreet/base/error.h"
#include "discreet/base/hash.h"
#include "discreet/random/key.h"

namespace discreet::run {

// HMAC-SHA-256 of the bytes under a stream derived from the secret.
inline Digest mac(ByteView bytes, const random::Key& secret, std::string_view stream) {
  const random::Key key = secret.derive(stream);
  Digest out{};
  unsigned length = 0;
  if (HMAC(EVP_sha256(), key.secret_bytes().data(), static_cast<int>(key.secret_bytes().size()),
           bytes.data(), bytes.size(), out.data(), &length) == nullptr ||
      length != out.size())
    io_error(stream, "OpenSSL could not compute an HMAC");
  return out;
}

}  // namespace discreet::run
