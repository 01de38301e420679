#pragma once

namespace discreet::random {

// 128-bit integers, as GCC and Clang have them on every 64-bit processor.
__extension__ typedef unsigned __int128 Uint128;

}  // namespace discreet::random
