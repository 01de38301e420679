#include "discreet/admission/scaled.h"

#include <fmt/core.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>

#include "discreet/base/error.h"
#include "discreet/base/text/utf8.h"
#include "discreet/numerics/rounding.h"

namespace discreet::admission {
namespace {

[[noreturn]] void invalid_text(std::string_view what, std::string_view text, const char* remedy) {
  invalid_input("parse", "{} is {}; {}", what, excerpt(text), remedy);
}

std::optional<std::uint64_t> digits(std::string_view text) {
  std::uint64_t number = 0;
  if (text.empty() || text.size() > 18) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

double Scaled::nearest() const noexcept {
  return static_cast<double>(units) / static_cast<double>(kUnit);
}
// fma gives the sign of quotient * 10^9 - units without rounding.
double Scaled::from_below() const noexcept {
  const double q = nearest();
  return std::fma(q, static_cast<double>(kUnit), -static_cast<double>(units)) > 0
             ? numerics::next_down(q)
             : q;
}
double Scaled::from_above() const noexcept {
  const double q = nearest();
  return std::fma(q, static_cast<double>(kUnit), -static_cast<double>(units)) < 0
             ? numerics::next_up(q)
             : q;
}

std::string Scaled::to_text() const {
  std::string text = fmt::format("{}.{:09}", units / kUnit, units % kUnit);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

Scaled parse_scaled(std::string_view text, std::string_view what) {
  constexpr const char* kRemedy =
      "expected digits with at most nine decimals, up to 9007199, such as 0.25";
  const std::size_t point = text.find('.');
  const std::string_view fraction =
      point == std::string_view::npos ? std::string_view("0") : text.substr(point + 1);
  const auto whole = digits(text.substr(0, point));
  const auto part = digits(fraction);
  if (!whole || !part || fraction.size() > 9 || *whole > Scaled::kMost / Scaled::kUnit)
    invalid_text(what, text, kRemedy);
  std::uint64_t units = *part;
  for (std::size_t i = fraction.size(); i < 9; ++i) units *= 10;
  units += *whole * Scaled::kUnit;
  if (units > Scaled::kMost) invalid_text(what, text, kRemedy);
  return {units};
}

Instant parse_instant(std::string_view text, std::string_view what) {
  constexpr const char* kRemedy =
      "expected a time such as 2026-11-16T12:00:00Z or a day such as 2026-11-16";
  const bool with_time = text.size() == 20;
  if ((text.size() != 10 && !with_time) || text[4] != '-' || text[7] != '-' ||
      (with_time && (text[10] != 'T' || text[13] != ':' || text[16] != ':' || text[19] != 'Z')))
    invalid_text(what, text, kRemedy);
  const auto field = [&](std::size_t at, std::size_t length) {
    const auto number = digits(text.substr(at, length));
    if (!number) invalid_text(what, text, kRemedy);
    return static_cast<unsigned>(*number);
  };
  const std::chrono::year_month_day day{std::chrono::year(static_cast<int>(field(0, 4))),
                                        std::chrono::month(field(5, 2)),
                                        std::chrono::day(field(8, 2))};
  if (!day.ok() || day.year() < std::chrono::year(1970)) invalid_text(what, text, kRemedy);
  Instant seconds = std::chrono::sys_days(day).time_since_epoch().count() * Instant{86400};
  if (with_time) {
    const unsigned h = field(11, 2), m = field(14, 2), s = field(17, 2);
    if (h > 23 || m > 59 || s > 59) invalid_text(what, text, kRemedy);
    seconds += Instant{3600} * h + Instant{60} * m + s;
  }
  return seconds;
}

std::string instant_text(Instant instant) {
  const std::chrono::sys_days day{std::chrono::days(instant / 86400)};
  const std::chrono::year_month_day date(day);
  const auto rest = instant % 86400;
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     rest / 3600, rest / 60 % 60, rest % 60);
}

}  // namespace discreet::admission
