#pragma once

#include <cstddef>

namespace discreet::mechanism::kernels {

// y_i += scales_r * rows_r[i] for begin <= i < end, in ascending order of r < count for every i;
// product and sum each rounded to nearest in binary64, never fused. Rows need no alignment.
void add_rows(const float* const* rows, const double* scales, std::size_t count, std::size_t begin,
              std::size_t end, double* y) noexcept;
void add_rows(const double* const* rows, const double* scales, std::size_t count, std::size_t begin,
              std::size_t end, double* y) noexcept;

// A range begin <= i < end of a row's values.
struct Extent {
  std::size_t begin, end;
};
// The same for every i in one of the extents, which are disjoint; nothing between them is read.
void add_extents(const float* const* rows, const double* scales, std::size_t count,
                 const Extent* extents, std::size_t extent_count, double* y) noexcept;
void add_extents(const double* const* rows, const double* scales, std::size_t count,
                 const Extent* extents, std::size_t extent_count, double* y) noexcept;

inline constexpr std::size_t kMostMeasured = std::size_t{1} << 16;

// norms_r = an upper bound of the Euclidean norm of the n values of rows_r, n <= kMostMeasured: at
// least (1 + 2^-53) times it and at most (1 + 2^-48) times (plus 2^-1072); 0 if all are zero, NaN
// if one is not finite, +inf if the norm of finite values overflows. The bits depend on the row
// alone, not on the other rows or the vector width. Proof: clip.md
void norms_from_above(const float* const* rows, std::size_t count, std::size_t n,
                      double* norms) noexcept;
void norms_from_above(const double* const* rows, std::size_t count, std::size_t n,
                      double* norms) noexcept;


// norms_from_above of the values at blocks[0], …, blocks[block_count - 1], kBlock each, as if they
// stood side by side; nothing between them is read. block_count * kBlock <= kMostMeasured.
inline constexpr std::size_t kBlock = 32;
void norms_from_above(const float* const* rows, std::size_t count, const std::size_t* blocks,
                      std::size_t block_count, double* norms) noexcept;

}  // namespace discreet::mechanism::kernels
