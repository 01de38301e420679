#pragma once

#include <cstddef>
#include <cstdint>

namespace discreet::mechanism::kernels {

// y_i += scales_r * rows_r[i] for begin <= i < end, in ascending order of r < count for every i;
// product and sum each rounded to nearest in binary64, never fused. Rows need no alignment.
void add_rows(const float* const* rows, const double* scales, std::size_t count, std::size_t begin,
              std::size_t end, double* y) noexcept;
void add_rows(const double* const* rows, const double* scales, std::size_t count, std::size_t begin,
              std::size_t end, double* y) noexcept;

// Rows that are added together, with the scale of each.
template <class Real>
struct RowSet {
  const Real* const* rows;
  const double* scales;
  std::size_t count;
};
// A range begin <= i < end of coordinates, of at most kTile, to which the rows of a set are added.
struct Stripe {
  std::size_t begin, end;
  std::size_t set;
};
inline constexpr std::size_t kTile = 2048;  // its sum fits the first-level cache: 16 KiB
// add_rows of its set for every stripe. Stripes are disjoint and ascending; gaps are not read.
void add_stripes(const RowSet<float>* sets, const Stripe* stripes, std::size_t count,
                 double* y) noexcept;
void add_stripes(const RowSet<double>* sets, const Stripe* stripes, std::size_t count,
                 double* y) noexcept;

inline constexpr std::size_t kMostMeasured = std::size_t{1} << 16;

// norms_r = an upper bound of the Euclidean norm of the n values of rows_r, n <= kMostMeasured: at
// least (1 + 2^-53) times and at most (1 + 2^-48) times the norm (plus 2^-1072); 0 if all are zero,
// NaN if one is not finite, +inf if the norm of finite values overflows. The bits depend only on
// the row, not on other rows or the vector width.
// Proof: clip.md
void norms_from_above(const float* const* rows, std::size_t count, std::size_t n,
                      double* norms) noexcept;
void norms_from_above(const double* const* rows, std::size_t count, std::size_t n,
                      double* norms) noexcept;

// norms_from_above of rows in which value i counts as 0, whatever it is, if bit i mod 32 of word i
// / 32 of the row's mask is 0: the same bits as for a row with zeros there.
void masked_norms_from_above(const float* const* rows, const std::uint32_t* const* masks,
                             std::size_t count, std::size_t n, double* norms) noexcept;

}  // namespace discreet::mechanism::kernels
