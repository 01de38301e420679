#pragma once

#include <cstdint>
#include <span>

#include "discreet/base/secret_memory.h"

namespace discreet::random {

// The key stream of AES-128 in counter mode, by instructions that encrypt two or four blocks at
// once (VAES: since 2019 on processors with AVX-512, since 2020 on some with AVX2 only). OpenSSL
// 3.0 has no such code for this mode, and without it the secure generator would be slower than
// Philox. The bits are those of OpenSSL. Constant time, since there are no tables.
struct AesSchedule {
  SecretBytes round_keys = SecretBytes(176);  // eleven round keys of 16 bytes
};

bool has_wide_aes() noexcept;

// Both require has_wide_aes().
void expand_aes_key(std::span<const std::uint8_t, 16> key, AesSchedule& schedule) noexcept;
// The blocks of the 128-bit big-endian counters high·2^64 + block, … in the order of
// BlockSource::read.
void fill_wide_aes(const AesSchedule& schedule, std::uint64_t high, std::uint64_t block,
                   std::span<std::uint64_t> words) noexcept;

}  // namespace discreet::random
