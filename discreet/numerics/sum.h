#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "discreet/numerics/strict_arithmetic.h"

// Sums, dot products and Euclidean norms in binary64 whose bits depend on the data alone: not on
// the number of threads, nor on the vector width of the processor.
//
// The array is cut in chunks of 256 elements. Inside a chunk, lane j = 0..15 adds the elements
// j, j+16, j+32, ... in ascending order with Kahan's compensation; the lanes are merged in a fixed
// order, keeping the compensation; the chunks are merged in ascending order, again compensated.
// A last, shorter chunk is filled with zeros.
//
// Below u = 2^-53, n is the number of elements, n <= 2^40.
// An array that is empty has sum, dot product and norm +0.
// `threads` is the largest number of threads to use, the caller's included; below 1 counts as 1.
// With more than one thread an array of n/16 bytes is allocated (std::bad_alloc may be thrown).
// Proof: sum.md
namespace discreet::numerics {

// The sum of x, with |error| <= 7u * sum |x_i|.
// If the compensated sum is not finite (an element is not, or a partial sum overflowed) the result
// is that of plain addition in ascending order: ±inf for infinities of one sign, otherwise NaN.
double sum(std::span<const double> x, int threads = 1);
double sum(std::span<const float> x, int threads = 1);

// The dot product of x and y. Products of doubles are rounded, those of floats are exact:
// |error| <= 8u * sum |x_i y_i| + n 2^-1074. Not finite: as for sum, over the rounded products.
// Throws kInvalidInput if the sizes differ.
double dot(std::span<const double> x, std::span<const double> y, int threads = 1);
double dot(std::span<const float> x, std::span<const float> y, int threads = 1);

// The Euclidean norm sqrt(sum x_i^2), with relative error at most 5u (plus 2^-1074 when it is
// subnormal). Each chunk is scaled by a power of two near its largest element, so that nothing
// overflows unless the norm itself does (then +inf), and nothing that matters underflows.
// NaN if any element is NaN; otherwise +inf if any is infinite.
double norm_l2(std::span<const double> x, int threads = 1);
double norm_l2(std::span<const float> x, int threads = 1);

// norm_l2 of an array that is seen piece by piece, by any threads in any order: the same bits.
class PiecewiseNorm {
 public:
  explicit PiecewiseNorm(std::size_t count);  // the elements of the array
  // x is the elements from `begin` on: a multiple of 256, and so many of them unless they are the
  // last. Every element once; pieces may be added at the same time.
  void add(std::size_t begin, std::span<const double> x) noexcept;
  // When all is added. NaN if an element is not finite.
  double value() const noexcept;

 private:
  std::vector<std::array<double, 3>> partials_;  // one per chunk
};

// An upper bound of the exact Euclidean norm: never below it, at most a factor 1 + 16u above
// (plus 2^-1073). Rounds up; +0 for an array of zeros. NaN and infinities as for norm_l2.
// Use this one wherever a sensitivity is concerned: an under-estimated norm is an unsound clip.
double norm_l2_upper(std::span<const double> x, int threads = 1);
double norm_l2_upper(std::span<const float> x, int threads = 1);

// y_i += a * x_i for every i, product and sum each rounded to nearest in binary64 (never fused);
// a binary32 y is rounded once more, from the binary64 sum. x and y are the same array or do not
// overlap. Throws kInvalidInput if the sizes differ; y is then unchanged.
void scaled_add(double a, std::span<const double> x, std::span<double> y, int threads = 1);
void scaled_add(double a, std::span<const float> x, std::span<float> y, int threads = 1);
void scaled_add(double a, std::span<const float> x, std::span<double> y, int threads = 1);

}  // namespace discreet::numerics
