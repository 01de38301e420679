#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace discreet::admission {

// Signed or hashed objects contain no floats: a number is an integer multiple of 10^-9.
//   3.5 is Scaled{3'500'000'000}
// At most 2^53, so that the integer is exact in binary64 and a division rounds only once.
struct Scaled {
  static constexpr std::uint64_t kUnit = 1'000'000'000;
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 53;  // 9,007,199.25

  std::uint64_t units = 0;

  double nearest() const noexcept;
  double from_below() const noexcept;  // the largest binary64 <= the exact value
  double from_above() const noexcept;  // the smallest binary64 >= the exact value
  // Digits that read back to the same units: "0.5", "3".
  std::string to_text() const;
  friend auto operator<=>(const Scaled&, const Scaled&) = default;
};

// Reads digits with at most nine decimals, such as "0.25" or "12", without rounding. Throws
// kInvalidInput for anything else, including a sign or an exponent, and for values beyond kMost;
// the error's sentence starts with `what`.
Scaled parse_scaled(std::string_view text, std::string_view what);

// Seconds since 1970-01-01T00:00:00Z, without leap seconds; in [0, 253402300800), up to year 9999.
using Instant = std::int64_t;
inline constexpr Instant kEndOfTime = 253'402'300'800;

// "2026-11-16T12:00:00Z", or "2026-11-16" for midnight. Throws kInvalidInput for anything else.
Instant parse_instant(std::string_view text, std::string_view what);
std::string instant_text(Instant instant);  // "2026-11-16T12:00:00Z"

}  // namespace discreet::admission
