#include "discreet/base/text/rounded_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace discreet {
namespace {

// The printed number nearest to x that is not on the wrong side of it; `step` is at most a tenth of
// the last digit, or the distance to the next number where that is more.
template <class Show>
std::string round_towards(double x, double direction, double step, const Show& show) {
  if (!std::isfinite(x)) return direction > 0 ? "infinity" : show(x);
  step = std::max(step, std::abs(x) * 0x1p-51);
  std::string text = show(x);
  for (double moved = x; (std::strtod(text.c_str(), nullptr) - x) * direction < 0;) {
    text = show(moved += direction * step);
  }
  return text;
}

std::string round_digits(double x, double direction, int digits) {
  const bool small = x != 0 && std::abs(x) < 0.1;
  const double step = (small ? std::abs(x) : 1.0) * 0.1 * std::pow(10.0, -digits);
  return round_towards(x, direction, step, [&](double y) {
    return small ? fmt::format("{:.{}e}", y, digits - 1) : fmt::format("{:.{}f}", y, digits);
  });
}

std::string round_briefly(double x, double direction) {
  constexpr int kDigits = 5;
  return round_towards(x, direction, std::abs(x) * 1e-6, [](double y) -> std::string {
    const double size = std::abs(y);
    if (y == 0) return "0";
    if (size < 1e-3 || size >= 1e6) return fmt::format("{:.{}e}", y, kDigits - 1);
    const int before = static_cast<int>(std::floor(std::log10(size))) + 1;
    return fmt::format("{:.{}f}", y, std::max(0, kDigits - before));
  });
}

}  // namespace

std::string round_up(double x, int digits) { return round_digits(x, 1, digits); }
std::string round_down(double x, int digits) { return round_digits(x, -1, digits); }
std::string brief_up(double x) { return round_briefly(x, 1); }
std::string brief_down(double x) { return round_briefly(x, -1); }

}  // namespace discreet
