#include "cli/numbers.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "discreet/base/error.h"

namespace discreet::cli {
namespace {

[[noreturn]] void refuse(std::string_view option, const std::string& text, const char* wanted) {
  throw Error(ErrorCode::kInvalidDpConfig, std::string(option),
              fmt::format("{} is '{}'; give {}", option, text, wanted));
}

std::string show(double x, int digits) {
  return std::abs(x) < 0.1 && x != 0 ? fmt::format("{:.{}e}", x, digits - 1)
                                     : fmt::format("{:.{}f}", x, digits);
}

// The printed number nearest to x that is not on the wrong side of it.
std::string round_towards(double x, int digits, double direction) {
  if (!std::isfinite(x)) return direction > 0 ? "infinity" : show(x, digits);
  std::string text = show(x, digits);
  const double step =
      (x != 0 && std::abs(x) < 0.1 ? std::abs(x) : 1.0) * 0.1 * std::pow(10.0, -digits);
  for (double moved = x; (std::strtod(text.c_str(), nullptr) - x) * direction < 0;) {
    text = show(moved += direction * step, digits);
  }
  return text;
}

}  // namespace

double parse_number(std::string_view option, const std::string& text) {
  errno = 0;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || std::isspace(text.front())) {
    refuse(option, text, "a finite number such as 0.01");
  }
  return value;
}

std::uint64_t parse_count(std::string_view option, const std::string& text) {
  const double value = parse_number(option, text);
  if (!(value >= 0 && value <= 0x1p53) || value != std::floor(value)) {
    refuse(option, text, "a whole number from 0 to 2^53");
  }
  return static_cast<std::uint64_t>(value);
}

std::string round_up(double x, int digits) { return round_towards(x, digits, 1); }
std::string round_down(double x, int digits) { return round_towards(x, digits, -1); }

}  // namespace discreet::cli
