#include "discreet/base/hash.h"

#include <openssl/evp.h>

#include "discreet/base/error.h"

namespace discreet {
namespace {

void require(int ok, const char* what) {
  if (ok != 1) io_error("Sha256", "OpenSSL failed in {}", what);
}

}  // namespace

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  Context() {
    require(evp != nullptr, "EVP_MD_CTX_new");
    begin();
  }
  ~Context() { EVP_MD_CTX_free(evp); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  // Fetched once: looking the algorithm up costs more than hashing a Merkle node.
  void begin() {
    static EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
    require(algorithm != nullptr, "EVP_MD_fetch");
    require(EVP_DigestInit_ex(evp, algorithm, nullptr), "EVP_DigestInit_ex");
  }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

Sha256& Sha256::update(ByteView piece) {
  require(EVP_DigestUpdate(context_->evp, piece.data(), piece.size()), "EVP_DigestUpdate");
  return *this;
}

Digest Sha256::finish() {
  Digest digest;
  require(EVP_DigestFinal_ex(context_->evp, digest.data(), nullptr), "EVP_DigestFinal_ex");
  context_->begin();
  return digest;
}

Digest sha256(ByteView message) {
  thread_local Sha256 hasher;
  return hasher.update(message).finish();
}

}  // namespace discreet
