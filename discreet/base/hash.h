#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "discreet/base/bytes.h"

namespace discreet {

using Digest = std::array<std::uint8_t, 32>;

// SHA-256 (FIPS 180-4) of a message in one call. Throws kIoError if OpenSSL fails.
Digest sha256(ByteView message);

// SHA-256 of a message that arrives in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  Sha256& update(ByteView piece);
  // The digest of all pieces so far. Afterwards the object holds an empty message again.
  Digest finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace discreet
