#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "discreet/base/bytes.h"

// Proof: ed25519.md (which signatures are accepted)

struct evp_pkey_st;  // OpenSSL's key

namespace discreet::admission {

// Ed25519 (RFC 8032, pure) under one strict profile: for given key and message exactly one party
// can make a signature that passes, and nobody can turn a passing signature into another.

using Signature = std::array<std::uint8_t, 64>;  // R, then S
using KeyId = std::array<std::uint8_t, 16>;      // of COSE headers: "which key", not "trusted"

// The 32 bytes of a point A. Ordered by its bytes.
class PublicKey {
 public:
  static constexpr std::size_t kSize = 32;

  // Throws kMalformed unless `bytes` are 32 that the strict profile takes: a canonical encoding of
  // a point that is not of low order. (Whether it is on the curve shows when it verifies.)
  static PublicKey from_bytes(ByteView bytes);
  // 64 hexadecimal digits, or the PEM of a SubjectPublicKeyInfo. Throws kMalformed otherwise.
  static PublicKey from_text(std::string_view text);

  ByteView bytes() const noexcept { return bytes_; }
  // The first 16 bytes of SHA-256 of the 32.
  KeyId id() const;
  std::string to_pem() const;

  // Whether the signature is one of this message under the strict profile. Never throws for bytes
  // of any content; kIoError if OpenSSL fails.
  bool verifies(ByteView message, ByteView signature) const;

  friend auto operator<=>(const PublicKey&, const PublicKey&) = default;

 private:
  explicit PublicKey(const std::array<std::uint8_t, kSize>& bytes) : bytes_(bytes) {}
  std::array<std::uint8_t, kSize> bytes_;
};

// A private key. It moves and never copies; OpenSSL overwrites it when it goes.
class SigningKey {
 public:
  // From the operating system's randomness. kIoError when there is none.
  static SigningKey generate();
  // RFC 8032's 32-byte secret. Throws kMalformed unless there are 32.
  static SigningKey from_seed(ByteView seed);

  // PEM of PKCS #8, as `openssl pkey` reads it; with a passphrase encrypted by AES-256-CBC under a
  // key from scrypt (N = 2^14, r = 8, p = 5; 16-byte random salt). The text is as secret as the
  // key.
  std::string to_pem(std::string_view passphrase = {}) const;
  // Throws kMalformed if it is no Ed25519 key in PEM; kInvalidInput if it is encrypted and there is
  // no passphrase, or a wrong one.
  static SigningKey from_pem(std::string_view pem, std::string_view passphrase = {});
  // Whether from_pem needs a passphrase.
  static bool is_encrypted(std::string_view pem) noexcept;

  PublicKey public_key() const;
  Signature sign(ByteView message) const;

  SigningKey(SigningKey&&) noexcept = default;
  SigningKey& operator=(SigningKey&&) noexcept = default;
  ~SigningKey();

 private:
  struct Free {
    void operator()(evp_pkey_st* key) const noexcept;
  };
  using Handle = std::unique_ptr<evp_pkey_st, Free>;
  explicit SigningKey(Handle key) : key_(std::move(key)) {}
  Handle key_;
};

// What the strict profile says of the 32 bytes of a point: canonical (y < 2^255 - 19) and not one
// of the 8 points whose order divides 8, in any encoding.
bool is_strict_point(ByteView point) noexcept;
// Of the 32 bytes of S: S < L, the order of the base point.
bool is_strict_scalar(ByteView scalar) noexcept;

}  // namespace discreet::admission
