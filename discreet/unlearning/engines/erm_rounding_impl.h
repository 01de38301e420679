#pragma once

#include <cstddef>

// Constants and helpers for the rounding bounds of erm_engine.md.
namespace discreet::unlearning {

// Number of rows summed together; small enough that BLAS does not start a second thread per block.
inline constexpr std::size_t kBlock = 128;
inline constexpr double kRound = 0x1p-53;

inline double up(double value) { return value * (1 + 0x1p-40); }
inline double gamma_of(double k) { return k * kRound / (1 - k * kRound); }
inline int as_int(std::size_t n) { return static_cast<int>(n); }

}  // namespace discreet::unlearning
