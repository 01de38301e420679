#pragma once

#include <cstddef>

// What the rounding bounds of erm_engine.md are written with.
namespace discreet::unlearning {

// Rows summed together; so few that the BLAS does not wake a second thread for each block of them.
inline constexpr std::size_t kBlock = 128;
inline constexpr double kRound = 0x1p-53;

inline double up(double value) { return value * (1 + 0x1p-40); }
inline double gamma_of(double k) { return k * kRound / (1 - k * kRound); }
inline int as_int(std::size_t n) { return static_cast<int>(n); }

}  // namespace discreet::unlearning
