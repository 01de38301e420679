#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace discreet::random {

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11),
// the generator of the specification: for each 64-bit key a bijection of 128-bit counters. It
// passes the usual statistical batteries but is NOT cryptographic; use it for tests and replay.
using PhiloxKey = std::array<std::uint32_t, 2>;
using PhiloxBlock = std::array<std::uint32_t, 4>;

// One block, in portable C++: the definition that the vector form matches bit for bit. counter[0]
// is the least significant word.
PhiloxBlock philox4x32_10(PhiloxBlock counter, PhiloxKey key) noexcept;

// The blocks of the counters (high, first), (high, first + 1), …, two 64-bit words per block:
// words[2i] = x0 + 2^32·x1 and words[2i+1] = x2 + 2^32·x3 of the block of counter {low 32 of
// first+i, high 32 of first+i, low 32 of high, high 32 of high}. An odd number of words ends with
// half a block.
void philox_fill(PhiloxKey key, std::uint64_t high, std::uint64_t first,
                 std::span<std::uint64_t> words) noexcept;

}  // namespace discreet::random
