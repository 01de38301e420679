#include "cli/numbers.h"

#include <fmt/format.h>

#include <algorithm>
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

std::string show(double x) {
  return std::abs(x) < 0.1 && x != 0 ? fmt::format("{:.5e}", x) : fmt::format("{:.6f}", x);
}

constexpr int kBriefDigits = 5;

std::string show_briefly(double x) {
  const double size = std::abs(x);
  if (x == 0) return "0";
  if (size < 1e-3 || size >= 1e6) return fmt::format("{:.{}e}", x, kBriefDigits - 1);
  const int before = static_cast<int>(std::floor(std::log10(size))) + 1;
  return fmt::format("{:.{}f}", x, std::max(0, kBriefDigits - before));
}

double read(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

// The printed number nearest to x that is not on the wrong side of it.
std::string round_towards(double x, double direction) {
  if (!std::isfinite(x)) return direction > 0 ? "infinity" : show(x);
  std::string text = show(x);
  const double step = x != 0 && std::abs(x) < 0.1 ? std::abs(x) * 1e-6 : 1e-7;
  for (double moved = x; (read(text) - x) * direction < 0;) text = show(moved += direction * step);
  return text;
}

std::string briefly_towards(double x, double direction) {
  if (!std::isfinite(x)) return direction > 0 ? "infinity" : show_briefly(x);
  std::string text = show_briefly(x);
  const double step = std::abs(x) * 1e-6;
  for (double moved = x; (read(text) - x) * direction < 0;) {
    text = show_briefly(moved += direction * step);
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

std::string round_up(double x) { return round_towards(x, 1); }
std::string round_down(double x) { return round_towards(x, -1); }
std::string brief_up(double x) { return briefly_towards(x, 1); }
std::string brief_down(double x) { return briefly_towards(x, -1); }

}  // namespace discreet::cli
