#pragma once

namespace discreet::random {

// 128-bit integers, which GCC and Clang provide on every 64-bit processor.
__extension__ typedef unsigned __int128 Uint128;

}  // namespace discreet::random
