#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace discreet::accounting::contour {

__extension__ typedef __int128 Int128;

// A number in units of 2^-64, stored as a 128-bit integer: sums are exact, so a total does not
// depend on the order of its parts, or on how often parts were removed again. Magnitudes reach
// 2^60; beyond that a number is `lost` and stays lost.
class Fixed {
 public:
  Fixed() = default;

  // count * x, exact except for one rounding to the grid of at most 2^-65.
  static Fixed product(std::int64_t count, double x) noexcept {
    Fixed result;
    const double size = std::abs(x) * std::abs(static_cast<double>(count));
    if (!(size < 0x1p60)) return lost();
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
    const int exponent = static_cast<int>((bits >> 52) & 0x7ff);
    if (exponent == 0) return result;
    const std::uint64_t mantissa = (bits & ((1ull << 52) - 1)) | (1ull << 52);
    const std::uint64_t n = count < 0 ? 0 - static_cast<std::uint64_t>(count) : count;
    Int128 value = static_cast<Int128>(mantissa) * static_cast<Int128>(n);
    const int shift = exponent - 1075 + kFraction;
    if (shift >= 0) {
      value <<= shift;
    } else if (shift > -126) {
      value = (value + (static_cast<Int128>(1) << (-shift - 1))) >> -shift;
    } else {
      value = 0;
    }
    result.value_ = ((count < 0) != (x < 0)) ? -value : value;
    return result;
  }

  // a * b, where a has at most 24 significant bits; rounded as above.
  static Fixed short_product(double a, double b) noexcept {
    int exponent;
    const double mantissa = std::frexp(a, &exponent);
    return product(static_cast<std::int64_t>(std::ldexp(mantissa, 24)),
                   std::ldexp(b, exponent - 24));
  }

  static Fixed lost() noexcept {
    Fixed result;
    result.lost_ = 1;
    return result;
  }

  Fixed& operator+=(const Fixed& other) noexcept {
    value_ += other.value_;
    lost_ += other.lost_;
    if (value_ > kLimit || value_ < -kLimit) *this = lost();
    return *this;
  }
  friend Fixed operator-(const Fixed& a, const Fixed& b) noexcept {
    Fixed negative = b;
    negative.value_ = -negative.value_;
    Fixed result = a;
    return result += negative;
  }

  // The nearest double or a neighbour of it (relative error at most 2^-52); NaN if lost.
  double value() const noexcept {
    if (lost_ != 0) return std::numeric_limits<double>::quiet_NaN();
    const Int128 magnitude = value_ < 0 ? -value_ : value_;
    const double high = static_cast<double>(static_cast<std::uint64_t>(magnitude >> 64));
    const double low = static_cast<double>(static_cast<std::uint64_t>(magnitude)) * 0x1p-64;
    return value_ < 0 ? -(high + low) : high + low;
  }

 private:
  static constexpr int kFraction = 64;
  static constexpr Int128 kLimit = static_cast<Int128>(1) << 125;
  Int128 value_ = 0;
  std::int64_t lost_ = 0;
};

}  // namespace discreet::accounting::contour
