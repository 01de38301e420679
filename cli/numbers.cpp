#include "cli/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "discreet/base/error.h"

namespace discreet::cli {
namespace {

[[noreturn]] void refuse(std::string_view option, const std::string& text, const char* wanted) {
  throw Error(ErrorCode::kInvalidDpConfig, std::string(option),
              fmt::format("{} is '{}'; give {}", option, text, wanted));
}

double number(std::string_view option, const std::string& text, const char* wanted) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool begins_with_space =
      !text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0;
  if (text.empty() || begins_with_space || *end != '\0' || !std::isfinite(value))
    refuse(option, text, wanted);
  return value;
}

}  // namespace

double parse_number(std::string_view option, const std::string& text) {
  return number(option, text, "a finite number such as 0.01");
}

std::uint64_t parse_count(std::string_view option, const std::string& text) {
  constexpr const char* kWanted = "a whole number such as 256, at most 2^53";
  const double value = number(option, text, kWanted);
  if (!(value >= 0 && value <= 0x1p53) || value != std::floor(value)) refuse(option, text, kWanted);
  return static_cast<std::uint64_t>(value);
}

double parse_delta(std::string_view option, const std::string& text) {
  const double value = parse_number(option, text);
  if (!(value >= 1e-300 && value <= 0.999999)) refuse(option, text, "a number in (0, 1)");
  return value;
}

int parse_threads(const std::string& text) {
  if (text.empty()) return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const std::uint64_t threads = parse_count("--threads", text);
  if (threads == 0 || threads > 1024) refuse("--threads", text, "a whole number from 1 to 1024");
  return static_cast<int>(threads);
}

std::uint64_t parse_group_size(std::string_view option, const std::string& text) {
  const std::uint64_t size = parse_count(option, text);
  if (size < 1 || size > std::uint64_t{1} << 32)
    refuse(option, text, "a whole number from 1 to 2^32");
  return size;
}

}  // namespace discreet::cli
