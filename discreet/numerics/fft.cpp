#include "discreet/numerics/fft.h"

#include <string>
#include <utility>

#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"

namespace discreet::numerics {
namespace {

using Complex = std::complex<double>;

// e^(-2 pi i k / n). The quarter turn is removed in integers, so that only the rounding of the
// remaining fraction is lost.
Complex unit_root(std::size_t k, std::size_t n) {
  const std::size_t quarter = (4 * k + n / 2) / n;
  const double rest = static_cast<double>(static_cast<std::ptrdiff_t>(4 * k - quarter * n));
  double sine, cosine;
  sin_cos_two_pi(rest / static_cast<double>(n) * 0.25, sine, cosine);
  switch (quarter & 3) {
    case 0: return {cosine, -sine};
    case 1: return {-sine, -cosine};
    case 2: return {-cosine, sine};
    default: return {sine, cosine};
  }
}

// operator* of std::complex checks for NaN and infinities.
template <bool kConjugate>
inline Complex times(Complex a, Complex w) {
  const double re = w.real(), im = kConjugate ? -w.imag() : w.imag();
  return {a.real() * re - a.imag() * im, a.real() * im + a.imag() * re};
}

// -i a forwards, i a backwards.
template <bool kInverse>
inline Complex turned(Complex a) {
  return kInverse ? Complex(-a.imag(), a.real()) : Complex(a.imag(), -a.real());
}

template <bool kInverse>
inline void butterfly(Complex (&a)[2]) {
  const Complex t = a[0] - a[1];
  a[0] += a[1];
  a[1] = t;
}

template <bool kInverse>
inline void butterfly(Complex (&a)[3]) {
  constexpr double kSin = 0x1.bb67ae8584caap-1;  // sin(2 pi/3)
  const Complex sum = a[1] + a[2], middle = a[0] - 0.5 * sum;
  const Complex side = turned<kInverse>(kSin * (a[1] - a[2]));
  a[0] += sum;
  a[1] = middle + side;
  a[2] = middle - side;
}

template <bool kInverse>
inline void butterfly(Complex (&a)[4]) {
  const Complex even = a[0] + a[2], odd = a[1] + a[3];
  const Complex even2 = a[0] - a[2], odd2 = turned<kInverse>(a[1] - a[3]);
  a[0] = even + odd;
  a[1] = even2 + odd2;
  a[2] = even - odd;
  a[3] = even2 - odd2;
}

template <bool kInverse>
inline void butterfly(Complex (&a)[5]) {
  constexpr double kCos1 = 0x1.3c6ef372fe95p-2, kCos2 = -0x1.9e3779b97f4a8p-1;  // of 2 pi/5, 4 pi/5
  constexpr double kSin1 = 0x1.e6f0e134454ffp-1, kSin2 = 0x1.2cf2304755a5ep-1;
  const Complex s1 = a[1] + a[4], d1 = a[1] - a[4], s2 = a[2] + a[3], d2 = a[2] - a[3];
  const Complex m1 = a[0] + kCos1 * s1 + kCos2 * s2, m2 = a[0] + kCos2 * s1 + kCos1 * s2;
  const Complex t1 = turned<kInverse>(kSin1 * d1 + kSin2 * d2);
  const Complex t2 = turned<kInverse>(kSin2 * d1 - kSin1 * d2);
  a[0] += s1 + s2;
  a[1] = m1 + t1;
  a[4] = m1 - t1;
  a[2] = m2 + t2;
  a[3] = m2 - t2;
}

// One step of Stockham's self-sorting transform: `in` is s interleaved sequences of length r m.
template <int R, bool kInverse>
void pass(const Complex* __restrict in, Complex* __restrict out, std::size_t m, std::size_t s,
          const Complex* twiddles) {
  for (std::size_t p = 0; p < m; ++p) {
    Complex w[R];
    for (int k = 1; k < R; ++k) w[k] = twiddles[p * static_cast<std::size_t>(k) * s];
    const Complex* source = in + s * p;
    Complex* target = out + s * p * R;
    for (std::size_t q = 0; q < s; ++q) {
      Complex a[R];
      for (std::size_t k = 0; k < R; ++k) a[k] = source[q + s * m * k];
      butterfly<kInverse>(a);
      target[q] = a[0];
      for (std::size_t k = 1; k < R; ++k) target[q + s * k] = times<kInverse>(a[k], w[k]);
    }
  }
}

void require_sizes(bool equal, std::size_t size) {
  if (!equal)
    invalid_input("Fft", "the size of an array differs from that of this transform, {}",
                  std::to_string(size));
}

std::size_t half_of(std::size_t n) {
  if (n == 0 || n % 2 != 0 || !is_fft_length(n / 2))
    invalid_input("RealFft", "{} is not twice a product of 2, 3 and 5; use 2 * fft_length(n/2)",
                  std::to_string(n));
  return n / 2;
}

constexpr double kUnit = 0x1p-53;

}  // namespace

bool is_fft_length(std::size_t n) noexcept {
  if (n == 0) return false;
  for (const std::size_t r : {2, 3, 5})
    while (n % r == 0) n /= r;
  return n == 1;
}

std::size_t fft_length(std::size_t n) noexcept {
  if (n < 1) return 1;
  while (!is_fft_length(n)) ++n;
  return n;
}

Fft::Fft(std::size_t n) : size_(n) {
  if (!is_fft_length(n))
    invalid_input("Fft", "{} is not a product of 2, 3 and 5; use fft_length(n)", std::to_string(n));
  // fft.md: the error of a pass in units of u, butterfly and twiddle; one more for the division by
  // n.
  relative_error_ = kUnit;
  static constexpr std::pair<int, double> kRadices[] = {{4, 8}, {2, 7}, {3, 12}, {5, 22}};
  for (const auto& [r, error] : kRadices) {
    const auto radix = static_cast<std::size_t>(r);
    for (; n % radix == 0; n /= radix) {
      radices_.push_back(r);
      relative_error_ += error * kUnit;
    }
  }
  relative_error_ *= 1 + 0x1p-20;  // products of such factors, as long as they are many u below 1
  twiddles_.resize(size_);
  for (std::size_t k = 0; k < size_; ++k) twiddles_[k] = unit_root(k, size_);
}

template <bool kInverse>
void Fft::transform(std::span<Complex> data, std::span<Complex> work) const {
  require_sizes(data.size() == size_ && work.size() == size_, size_);
  Complex* in = data.data();
  Complex* out = work.data();
  std::size_t m = size_, s = 1;
  for (const int r : radices_) {
    m /= static_cast<std::size_t>(r);
    switch (r) {
      case 2: pass<2, kInverse>(in, out, m, s, twiddles_.data()); break;
      case 3: pass<3, kInverse>(in, out, m, s, twiddles_.data()); break;
      case 4: pass<4, kInverse>(in, out, m, s, twiddles_.data()); break;
      default: pass<5, kInverse>(in, out, m, s, twiddles_.data());
    }
    s *= static_cast<std::size_t>(r);
    std::swap(in, out);
  }
  if (in != data.data())
    for (std::size_t i = 0; i < size_; ++i) data[i] = in[i];
}

void Fft::forward(std::span<Complex> data, std::span<Complex> work) const {
  transform<false>(data, work);
}

void Fft::inverse(std::span<Complex> data, std::span<Complex> work) const {
  transform<true>(data, work);
  const auto n = static_cast<double>(size_);
  for (Complex& value : data) value = {value.real() / n, value.imag() / n};
}

RealFft::RealFft(std::size_t n)
    : size_(n), half_(half_of(n)), relative_error_(half_.relative_error() + 8 * kUnit) {
  twiddles_.resize(n / 4 + 1);
  for (std::size_t k = 0; k <= n / 4; ++k) twiddles_[k] = unit_root(k, n);
}

// With z_j = x_2j + i x_2j+1, E and O the transforms of the even and odd elements:
// Z_k = E_k + i O_k and X_k = E_k + w^k O_k.
void RealFft::forward(std::span<const double> data, std::span<Complex> spectrum) const {
  require_sizes(data.size() == size_ && spectrum.size() == spectrum_size(), size_);
  const std::size_t h = size_ / 2;
  std::vector<Complex> work(h);
  for (std::size_t j = 0; j < h; ++j) spectrum[j] = {data[2 * j], data[2 * j + 1]};
  half_.forward(spectrum.first(h), work);
  const Complex first = spectrum[0];
  spectrum[0] = first.real() + first.imag();
  spectrum[h] = first.real() - first.imag();
  for (std::size_t k = 1; k <= h / 2; ++k) {
    const Complex z = spectrum[k], mirror = std::conj(spectrum[h - k]);
    const Complex even = 0.5 * (z + mirror), odd = turned<false>(0.5 * (z - mirror));
    const Complex rotated = times<false>(odd, twiddles_[k]);
    spectrum[k] = even + rotated;
    spectrum[h - k] = std::conj(even - rotated);
  }
}

void RealFft::inverse(std::span<const Complex> spectrum, std::span<double> data) const {
  require_sizes(data.size() == size_ && spectrum.size() == spectrum_size(), size_);
  const std::size_t h = size_ / 2;
  std::vector<Complex> z(h), work(h);
  const double first = spectrum[0].real(), last = spectrum[h].real();
  z[0] = {0.5 * (first + last), 0.5 * (first - last)};
  for (std::size_t k = 1; k <= h / 2; ++k) {
    const Complex x = spectrum[k], mirror = std::conj(spectrum[h - k]);
    const Complex even = 0.5 * (x + mirror);
    const Complex odd = turned<true>(times<true>(0.5 * (x - mirror), twiddles_[k]));
    z[k] = even + odd;
    z[h - k] = std::conj(even - odd);
  }
  half_.inverse(z, work);
  for (std::size_t j = 0; j < h; ++j) {
    data[2 * j] = z[j].real();
    data[2 * j + 1] = z[j].imag();
  }
}

}  // namespace discreet::numerics
