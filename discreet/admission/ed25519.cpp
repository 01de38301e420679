#include "discreet/admission/ed25519.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <openssl/rand.h>
#include <openssl/x509.h>

#include <algorithm>

#include "discreet/base/error.h"
#include "discreet/base/hash.h"
#include "discreet/base/secret_memory.h"

namespace discreet::admission {
namespace {

template <auto F>
struct Call {
  template <class T>
  void operator()(T* object) const noexcept {
    F(object);
  }
};
using Bio = std::unique_ptr<BIO, Call<BIO_free_all>>;
using Pkey = std::unique_ptr<EVP_PKEY, Call<EVP_PKEY_free>>;
using Digester = std::unique_ptr<EVP_MD_CTX, Call<EVP_MD_CTX_free>>;

[[noreturn]] void openssl_failed(const char* what) {
  ERR_clear_error();
  io_error("Ed25519", "OpenSSL failed to {}", what);
}

[[noreturn]] void malformed_key(std::string sentence) {
  ERR_clear_error();
  malformed("Ed25519", "{}", sentence);
}

using Bytes32 = std::array<std::uint8_t, 32>;

// Little-endian integers: is a < b?
bool below(ByteView a, const Bytes32& b) noexcept {
  for (std::size_t i = 32; i-- > 0;)
    if (a[i] != b[i]) return a[i] < b[i];
  return false;
}

constexpr Bytes32 repeated(std::uint8_t first, std::uint8_t middle, std::uint8_t last) {
  Bytes32 out{};
  for (std::uint8_t& b : out) b = middle;
  out[0] = first;
  out[31] = last;
  return out;
}

constexpr Bytes32 kPrime = repeated(0xed, 0xff, 0x7f);
constexpr Bytes32 kOrder = {0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7,
                            0xa2, 0xde, 0xf9, 0xde, 0x14, 0,    0,    0,    0,    0,    0,
                            0,    0,    0,    0,    0,    0,    0,    0,    0,    0x10};
// y of the points whose order divides 8: 0, 1, -1 and the two of order 8.
constexpr Bytes32 kLowOrder[] = {repeated(0, 0, 0),
                                 repeated(1, 0, 0),
                                 repeated(0xec, 0xff, 0x7f),
                                 {0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b,
                                  0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39,
                                  0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a},
                                 {0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4,
                                  0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6,
                                  0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05}};

Bio reader(std::string_view text) {
  Bio bio(
      BIO_new_mem_buf(text.data(), static_cast<int>(std::min<std::size_t>(text.size(), 1 << 20))));
  if (!bio) openssl_failed("allocate memory");
  return bio;
}

Bio writer() {
  Bio bio(BIO_new(BIO_s_secmem()));  // overwritten when it is destroyed
  if (!bio) bio.reset(BIO_new(BIO_s_mem()));
  if (!bio) openssl_failed("allocate memory");
  return bio;
}

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long length = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(length)};
}

bool has_label(std::string_view pem, std::string_view label) noexcept {
  return pem.find(label) != std::string_view::npos;
}

// What OpenSSL's buffer holds when it reads a key (PEM_BUFSIZE).
constexpr std::size_t kLongestPassphrase = 1024;

struct Passphrase {
  std::string_view text;
};

int give_passphrase(char* buffer, int size, int, void* user) {
  const std::string_view text = static_cast<const Passphrase*>(user)->text;
  if (text.size() > static_cast<std::size_t>(size)) return -1;
  std::copy(text.begin(), text.end(), buffer);
  return static_cast<int>(text.size());
}

}  // namespace

bool is_strict_point(ByteView point) noexcept {
  if (point.size() != 32) return false;
  Bytes32 y;
  std::copy(point.begin(), point.end(), y.begin());
  y[31] &= 0x7f;
  return below(y, kPrime) &&
         std::find(std::begin(kLowOrder), std::end(kLowOrder), y) == std::end(kLowOrder);
}

bool is_strict_scalar(ByteView scalar) noexcept {
  return scalar.size() == 32 && below(scalar, kOrder);
}

PublicKey PublicKey::from_bytes(ByteView bytes) {
  if (bytes.size() != kSize)
    malformed_key("a public key must have 32 bytes, found " + std::to_string(bytes.size()));
  if (!is_strict_point(bytes))
    malformed_key(
        "the public key " + to_hex(bytes) +
        " is of low order or not canonical, so it would verify messages that nobody signed");
  std::array<std::uint8_t, kSize> copy;
  std::copy(bytes.begin(), bytes.end(), copy.begin());
  return PublicKey(copy);
}

PublicKey PublicKey::from_text(std::string_view text) {
  if (!has_label(text, "-----BEGIN")) {
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
      text.remove_suffix(1);
    if (text.size() != 2 * kSize)
      malformed_key(
          "a public key must be 64 hexadecimal digits or a PEM file; give the .pub file that "
          "'discreet keygen' wrote");
    return from_bytes(from_hex(text));
  }
  const Bio bio = reader(text);
  const Pkey key(PEM_read_bio_PUBKEY(bio.get(), nullptr, nullptr, nullptr));
  Bytes32 raw;
  std::size_t length = raw.size();
  if (!key || EVP_PKEY_get_id(key.get()) != EVP_PKEY_ED25519 ||
      EVP_PKEY_get_raw_public_key(key.get(), raw.data(), &length) != 1)
    malformed_key(
        "the PEM contains no Ed25519 public key; give the .pub file that 'discreet keygen' wrote");
  return from_bytes(raw);
}

KeyId PublicKey::id() const {
  const Digest digest = sha256(bytes_);
  KeyId id;
  std::copy_n(digest.begin(), id.size(), id.begin());
  return id;
}

std::string PublicKey::to_pem() const {
  const Pkey key(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, bytes_.data(), bytes_.size()));
  const Bio bio = writer();
  if (!key || PEM_write_bio_PUBKEY(bio.get(), key.get()) != 1) openssl_failed("write a key");
  return text_of(bio.get());
}

bool PublicKey::verifies(ByteView message, ByteView signature) const {
  if (signature.size() != 64 || !is_strict_point(signature.first(32)) ||
      !is_strict_scalar(signature.last(32)))
    return false;
  const Pkey key(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, bytes_.data(), bytes_.size()));
  const Digester context(EVP_MD_CTX_new());
  if (!key || !context ||
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1)
    openssl_failed("prepare a verification");
  const int verdict = EVP_DigestVerify(context.get(), signature.data(), signature.size(),
                                       message.data(), message.size());
  if (verdict != 1) ERR_clear_error();
  return verdict == 1;
}

void SigningKey::Free::operator()(evp_pkey_st* key) const noexcept { EVP_PKEY_free(key); }
SigningKey::~SigningKey() = default;

SigningKey SigningKey::generate() {
  use_secret_memory();
  EVP_PKEY* key = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
  if (key == nullptr) openssl_failed("make a key");
  return SigningKey(Handle(key));
}

SigningKey SigningKey::from_seed(ByteView seed) {
  if (seed.size() != 32)
    malformed_key("a seed must have 32 bytes, found " + std::to_string(seed.size()));
  use_secret_memory();
  EVP_PKEY* key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed.data(), seed.size());
  if (key == nullptr) openssl_failed("take a seed");
  return SigningKey(Handle(key));
}

std::string SigningKey::to_pem(std::string_view passphrase) const {
  if (passphrase.size() > kLongestPassphrase)
    invalid_input("Ed25519",
                  "the passphrase has {} bytes, and a key under more than {} could not be opened "
                  "again; use a shorter one",
                  passphrase.size(), kLongestPassphrase);
  const Bio bio = writer();
  if (passphrase.empty()) {
    if (PEM_write_bio_PKCS8PrivateKey(bio.get(), key_.get(), nullptr, nullptr, 0, nullptr,
                                      nullptr) != 1)
      openssl_failed("write a key");
    return text_of(bio.get());
  }
  // 128 N r bytes must stay below OpenSSL's 32 MiB for readers; p makes up for the smaller N.
  constexpr std::uint64_t kN = 1 << 14, kR = 8, kP = 5;
  std::uint8_t salt[16];
  if (RAND_bytes(salt, sizeof salt) != 1) openssl_failed("draw a salt");
  X509_ALGOR* scheme =
      PKCS5_pbe2_set_scrypt(EVP_aes_256_cbc(), salt, sizeof salt, nullptr, kN, kR, kP);
  if (scheme == nullptr) openssl_failed("set up scrypt");
  const std::unique_ptr<PKCS8_PRIV_KEY_INFO, Call<PKCS8_PRIV_KEY_INFO_free>> plain(
      EVP_PKEY2PKCS8(key_.get()));
  const std::unique_ptr<X509_SIG, Call<X509_SIG_free>> sealed(
      plain ? PKCS8_set0_pbe(passphrase.data(), static_cast<int>(passphrase.size()), plain.get(),
                             scheme)
            : nullptr);
  if (!sealed) {
    X509_ALGOR_free(scheme);
    openssl_failed("encrypt a key");
  }
  if (PEM_write_bio_PKCS8(bio.get(), sealed.get()) != 1) openssl_failed("write a key");
  return text_of(bio.get());
}

bool SigningKey::is_encrypted(std::string_view pem) noexcept {
  return has_label(pem, "-----BEGIN ENCRYPTED PRIVATE KEY-----");
}

SigningKey SigningKey::from_pem(std::string_view pem, std::string_view passphrase) {
  use_secret_memory();
  const bool encrypted = is_encrypted(pem);
  if (encrypted && passphrase.empty())
    invalid_input("Ed25519", "the key file is encrypted; a passphrase is required");
  const Bio bio = reader(pem);
  Passphrase given{passphrase};
  Handle key(PEM_read_bio_PrivateKey(bio.get(), nullptr, give_passphrase, &given));
  ERR_clear_error();
  if (!key && encrypted)
    invalid_input(
        "Ed25519",
        "the key file cannot be decrypted: the passphrase is wrong or the file is damaged");
  if (!key || EVP_PKEY_get_id(key.get()) != EVP_PKEY_ED25519)
    malformed_key(
        "the file contains no Ed25519 private key in PEM; create one with 'discreet keygen'");
  return SigningKey(std::move(key));
}

PublicKey SigningKey::public_key() const {
  Bytes32 raw;
  std::size_t length = raw.size();
  if (EVP_PKEY_get_raw_public_key(key_.get(), raw.data(), &length) != 1)
    openssl_failed("compute the public key");
  return PublicKey::from_bytes(raw);
}

Signature SigningKey::sign(ByteView message) const {
  const Digester context(EVP_MD_CTX_new());
  Signature signature;
  std::size_t length = signature.size();
  if (!context || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) != 1 ||
      EVP_DigestSign(context.get(), signature.data(), &length, message.data(), message.size()) !=
          1 ||
      length != signature.size())
    openssl_failed("sign");
  return signature;
}

}  // namespace discreet::admission
