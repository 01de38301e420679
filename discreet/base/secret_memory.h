#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "discreet/base/bytes.h"

namespace discreet {

// Memory for keys and passphrases: OpenSSL's secure heap, one MiB per process. Its pages are
// excluded from core dumps and, within the limits of the process, are not swapped. After
// use_secret_memory() OpenSSL keeps its own private keys there too.
void use_secret_memory() noexcept;

// Throws std::bad_alloc when the heap is full. Aligned for every type.
void* allocate_secret(std::size_t bytes);
// Overwrites the memory and releases it.
void free_secret(void* memory, std::size_t bytes) noexcept;

template <class T>
struct SecretAllocator {
  using value_type = T;
  SecretAllocator() = default;
  template <class U>
  SecretAllocator(const SecretAllocator<U>&) noexcept {}  // NOLINT(google-explicit-constructor)
  T* allocate(std::size_t n) { return static_cast<T*>(allocate_secret(n * sizeof(T))); }
  void deallocate(T* memory, std::size_t n) noexcept { free_secret(memory, n * sizeof(T)); }
  friend bool operator==(const SecretAllocator&, const SecretAllocator&) noexcept { return true; }
};

using SecretBytes = std::vector<std::uint8_t, SecretAllocator<std::uint8_t>>;

inline std::string_view text_of(const SecretBytes& bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Overwrites the part of the stack below the caller, where finished calls may have left secrets.
void wipe_stack() noexcept;

}  // namespace discreet
