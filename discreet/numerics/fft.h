#pragma once

#include <complex>
#include <cstddef>
#include <span>
#include <vector>

#include "discreet/numerics/strict_arithmetic.h"

// The discrete Fourier transform in binary64, for lengths 2^a 3^b 5^c; the same bits everywhere.
//
// A Stockham transform of radix 4, 2, 3 and 5 with tabulated twiddles from our own sine and cosine.
// (KissFFT's header was the first choice. Its twiddles come from libm, cos and sin of a rounded
// multiple of a rounded 2 pi/n, which is n u off at the far end, and they are private: nobody can
// give it others without reaching around the language. This one is also faster.)
//
// Accuracy: the computed transform differs from the exact one by at most relative_error() times its
// Euclidean norm: ||computed - exact|| <= relative_error() * ||exact||.
// Proof: fft.md
namespace discreet::numerics {

// Whether n >= 1 has no prime factor above 5.
bool is_fft_length(std::size_t n) noexcept;

// The smallest length >= n; n <= 2^40.
std::size_t fft_length(std::size_t n) noexcept;

// Transforms of one length, complex. An object is immutable: threads may share it.
class Fft {
 public:
  using Complex = std::complex<double>;

  // Throws kInvalidInput unless n is a length. Memory: 16 n bytes.
  explicit Fft(std::size_t n);

  std::size_t size() const noexcept { return size_; }

  // data_k <- sum_j data_j e^(-2 pi i j k / n). `work` has the same size; its content is lost.
  // Throws kInvalidInput if a size differs from size().
  void forward(std::span<Complex> data, std::span<Complex> work) const;

  // data_j <- (1/n) sum_k data_k e^(2 pi i j k / n): the inverse of forward.
  void inverse(std::span<Complex> data, std::span<Complex> work) const;

  // The relative error of one transform, in the Euclidean norm (see above).
  double relative_error() const noexcept { return relative_error_; }

  // e^(-2 pi i k / n), k < n: within 2.2u of it, u = 2^-53.
  std::span<const Complex> twiddles() const noexcept { return twiddles_; }

 private:
  template <bool kInverse>
  void transform(std::span<Complex> data, std::span<Complex> work) const;

  std::size_t size_;
  std::vector<int> radices_;
  std::vector<Complex> twiddles_;
  double relative_error_ = 0;
};

// Transforms of n real numbers, n even and n/2 a length; half the work of the complex one.
class RealFft {
 public:
  using Complex = std::complex<double>;

  explicit RealFft(std::size_t n);

  std::size_t size() const noexcept { return size_; }
  std::size_t spectrum_size() const noexcept { return size_ / 2 + 1; }

  // spectrum_k = sum_j data_j e^(-2 pi i j k / n) for k = 0..n/2; the others are their conjugates.
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
