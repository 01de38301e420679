#pragma once

#include <complex>
#include <cstddef>
#include <span>
#include <vector>

#include "discreet/numerics/strict_arithmetic.h"

// The discrete Fourier transform in binary64, for lengths 2^a 3^b 5^c; the same bits everywhere.
//
// A Stockham transform of radix 4, 2, 3 and 5 with twiddle factors tabulated from this room's sine
// and cosine. KissFFT is not used: it takes its twiddles from libm as the cosine and sine of a
// rounded multiple of a rounded 2 pi/n, which is off by up to n u, and they cannot be replaced from
// outside. This transform is also faster.
//
// Accuracy: ||computed - exact|| <= relative_error() * ||exact|| in the Euclidean norm.
// Proof: fft.md
namespace discreet::numerics {

// True if n >= 1 has no prime factor above 5: a supported length.
bool is_fft_length(std::size_t n) noexcept;

// The smallest supported length >= n, for n <= 2^40.
std::size_t fft_length(std::size_t n) noexcept;

// Complex transforms of one length. An object is immutable: threads may share it.
class Fft {
 public:
  using Complex = std::complex<double>;

  // Throws kInvalidInput unless is_fft_length(n). Memory: 16 n bytes.
  explicit Fft(std::size_t n);

  std::size_t size() const noexcept { return size_; }

  // data_k <- sum_j data_j e^(-2 pi i j k / n). `work` has the same size; its content is lost.
  // Throws kInvalidInput if a size differs from size().
  void forward(std::span<Complex> data, std::span<Complex> work) const;

  // data_j <- (1/n) sum_k data_k e^(2 pi i j k / n): the inverse of forward.
  void inverse(std::span<Complex> data, std::span<Complex> work) const;

  // The relative error of one transform, in the Euclidean norm (see above).
  double relative_error() const noexcept { return relative_error_; }

  // e^(-2 pi i k / n) for k < n, with absolute error at most 2.2u, u = 2^-53.
  std::span<const Complex> twiddles() const noexcept { return twiddles_; }

 private:
  template <bool kInverse>
  void transform(std::span<Complex> data, std::span<Complex> work) const;

  std::size_t size_;
  std::vector<int> radices_;
  std::vector<Complex> twiddles_;
  double relative_error_ = 0;
};

// Transforms of n real numbers, where n is even and n/2 is a supported length; half the work of the
// complex transform.
class RealFft {
 public:
  using Complex = std::complex<double>;

  explicit RealFft(std::size_t n);

  std::size_t size() const noexcept { return size_; }
  std::size_t spectrum_size() const noexcept { return size_ / 2 + 1; }

  // spectrum_k = sum_j data_j e^(-2 pi i j k / n) for k = 0..n/2; the remaining values are their
  // conjugates.
  void forward(std::span<const double> data, std::span<Complex> spectrum) const;

  // The inverse of forward. The imaginary parts of spectrum_0 and spectrum_(n/2) are ignored.
  void inverse(std::span<const Complex> spectrum, std::span<double> data) const;

  double relative_error() const noexcept { return relative_error_; }

 private:
  std::size_t size_;
  Fft half_;
  std::vector<Complex> twiddles_;  // e^(-2 pi i k / n), k <= n/4
  double relative_error_;
};

}  // namespace discreet::numerics
