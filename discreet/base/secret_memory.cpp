#include "discreet/base/secret_memory.h"

#include <openssl/crypto.h>

#include <new>

namespace discreet {

void use_secret_memory() noexcept {
  // Fails if the process already has such a heap, which is then used, or if it cannot have one.
  // OpenSSL then uses ordinary memory and still overwrites it.
  [[maybe_unused]] static const int begun = CRYPTO_secure_malloc_init(std::size_t{1} << 20, 32);
}

void* allocate_secret(std::size_t bytes) {
  use_secret_memory();
  void* memory = OPENSSL_secure_malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void free_secret(void* memory, std::size_t bytes) noexcept {
  OPENSSL_secure_clear_free(memory, bytes);
}

// Vectors of round keys that did not fit the registers are the largest thing there: 2 KiB on
// AVX-512, and the frames around it.
[[gnu::noinline]] void wipe_stack() noexcept {
  std::uint8_t below[8192];
  OPENSSL_cleanse(below, sizeof(below));
}

}  // namespace discreet
