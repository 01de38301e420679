#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "discreet/numerics/strict_arithmetic.h"

// Sums, dot products and Euclidean norms in binary64. Their bits depend only on the data, not on
// the number of threads or the vector width of the processor.
//
// The array is divided into chunks of 256 elements. Inside a chunk, lane j = 0..15 adds the
// elements j, j+16, j+32, ... in ascending order with Kahan's compensation; the lanes are merged in
// a fixed order, keeping the compensation; the chunks are merged in ascending order, again
// compensated. A shorter last chunk is padded with zeros.
//
// Below, u = 2^-53 and n <= 2^40 is the number of elements. An empty array has sum, dot product and
// norm +0.
// threads: the maximum number of threads, including the caller's; a value below 1 counts as 1. With
// more than one thread, an array of n/16 bytes is allocated (std::bad_alloc may be thrown).
// Proof: sum.md
namespace discreet::numerics {

// The sum of x, with |error| <= 7u * sum |x_i|.
// If the compensated sum is not finite (an element is not, or a partial sum overflowed), the result
// is that of plain addition in ascending order: ±inf for infinities of one sign, otherwise NaN.
double sum(std::span<const double> x, int threads = 1);
double sum(std::span<const float> x, int threads = 1);

// The dot product of x and y. Products of doubles are rounded, products of floats are exact:
// |error| <= 8u * sum |x_i y_i| + n 2^-1074. If it is not finite, the rule of sum applies to the
// rounded products.
// Throws kInvalidInput if the sizes differ.
double dot(std::span<const double> x, std::span<const double> y, int threads = 1);
double dot(std::span<const float> x, std::span<const float> y, int threads = 1);

// The Euclidean norm sqrt(sum x_i^2), with relative error at most 5u (plus 2^-1074 if the norm is
// subnormal). Each chunk is scaled by a power of two near its largest element. So nothing overflows
// unless the norm itself does (then it is +inf), and no underflow affects the bound.
// NaN if any element is NaN; otherwise +inf if any is infinite.
double norm_l2(std::span<const double> x, int threads = 1);
double norm_l2(std::span<const float> x, int threads = 1);

// norm_l2 of an array whose pieces arrive in any order and from any thread, with the same bits.
class PiecewiseNorm {
 public:
  explicit PiecewiseNorm(std::size_t count);  // the length of the array
  // Adds the elements x from index `begin` on. `begin` and the number of elements are multiples of
  // 256; only the last piece may be shorter. Every element must be added exactly once; concurrent
  // calls are allowed.
  void add(std::size_t begin, std::span<const double> x) noexcept;
  // The norm, after all elements were added. NaN if an element is not finite.
  double value() const noexcept;

 private:
  std::vector<std::array<double, 3>> partials_;  // one per chunk
};

// An upper bound of the exact Euclidean norm: never below it, above it by at most a factor 1 + 16u
// (plus 2^-1073). Rounds up; +0 for an array of zeros. NaN and infinities as for norm_l2. Use this
// function wherever a sensitivity depends on the norm: a clip based on an underestimated norm is
// unsound.
double norm_l2_upper(std::span<const double> x, int threads = 1);
double norm_l2_upper(std::span<const float> x, int threads = 1);

// y_i += a * x_i for every i, product and sum each rounded to nearest in binary64 (never fused);
// a binary32 y is rounded once more, from the binary64 sum. x and y are the same array or do not
// overlap. Throws kInvalidInput if the sizes differ; y is then unchanged.
void scaled_add(double a, std::span<const double> x, std::span<double> y, int threads = 1);
void scaled_add(double a, std::span<const float> x, std::span<float> y, int threads = 1);
void scaled_add(double a, std::span<const float> x, std::span<double> y, int threads = 1);

}  // namespace discreet::numerics
