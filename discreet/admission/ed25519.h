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

// Ed25519 (RFC 8032, pure) under one strict profile: for a given key and message, only the holder
// of the private key can create a valid signature, and nobody can turn one valid signature into
// another.

using Signature = std::array<std::uint8_t, 64>;  // R, then S
using KeyId = std::array<std::uint8_t, 16>;      // in COSE headers; says which key, not trust

// The 32 bytes of a point A. Ordered bytewise.
class PublicKey {
 public:
  static constexpr std::size_t kSize = 32;

  // Throws kMalformed unless `bytes` has 32 bytes that the strict profile accepts: the canonical
  // encoding of a point that is not of low order. Verification checks that it is on the curve.
  static PublicKey from_bytes(ByteView bytes);
  // 64 hexadecimal digits, or the PEM of a SubjectPublicKeyInfo. Throws kMalformed otherwise.
  static PublicKey from_text(std::string_view text);

  ByteView bytes() const noexcept { return bytes_; }
  // The first 16 bytes of the SHA-256 of the key.
  KeyId id() const;
  std::string to_pem() const;

  // True if the signature is valid for this message under the strict profile. No input throws;
  // throws kIoError only if OpenSSL fails.
  bool verifies(ByteView message, ByteView signature) const;

  friend auto operator<=>(const PublicKey&, const PublicKey&) = default;

 private:
  explicit PublicKey(const std::array<std::uint8_t, kSize>& bytes) : bytes_(bytes) {}
  std::array<std::uint8_t, kSize> bytes_;
};

// A private key. It can be moved but not copied; OpenSSL overwrites it when it is destroyed.
class SigningKey {
 public:
  // Uses the operating system's randomness. Throws kIoError if that fails.
  static SigningKey generate();
  // The 32-byte secret of RFC 8032. Throws kMalformed for any other length.
  static SigningKey from_seed(ByteView seed);

  // PEM of PKCS #8, readable by `openssl pkey`; with a passphrase, encrypted by AES-256-CBC under a
  // key from scrypt (N = 2^14, r = 8, p = 5; 16-byte random salt). Without one, the text is as
  // secret as the key. Throws kInvalidInput for a passphrase of more than 1024 bytes, which OpenSSL
  // could not read again.
  std::string to_pem(std::string_view passphrase = {}) const;
  // Throws kMalformed if the text is not an Ed25519 key in PEM; kInvalidInput if it is encrypted
  // and the passphrase is missing or wrong.
  static SigningKey from_pem(std::string_view pem, std::string_view passphrase = {});
  // True if from_pem needs a passphrase.
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

// The strict profile's condition on the 32 bytes of a point: canonical (y < 2^255 - 19) and not one
// of the 8 points whose order divides 8, in any encoding.
bool is_strict_point(ByteView point) noexcept;
// The condition on the 32 bytes of S: S < L, the order of the base point.
bool is_strict_scalar(ByteView scalar) noexcept;

}  // namespace discreet::admission
