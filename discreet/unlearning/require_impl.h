#pragma once

#include <fmt/format.h>

#include <cmath>
#include <span>
#include <string_view>

#include "discreet/base/error.h"

// The checks of arguments that this room repeats.
namespace discreet::unlearning {

[[noreturn]] inline void refuse(const char* op, std::string_view name, double value,
                                std::string_view wanted) {
  throw Error(ErrorCode::kInvalidInput, op, fmt::format("{} is {}; give {}", name, value, wanted));
}

inline void require_positive(const char* op, std::string_view name, double value) {
  if (!(value > 0) || !std::isfinite(value)) refuse(op, name, value, "a finite number above 0");
}

inline void require_not_negative(const char* op, std::string_view name, double value) {
  if (!(value >= 0) || !std::isfinite(value)) {
    refuse(op, name, value, "a finite number not below 0");
  }
}

// Far from overflow and underflow, so that bounds need not speak of them.
inline void require_moderate(const char* op, std::string_view name, double value) {
  if (!(value >= 0x1p-100 && value <= 0x1p100)) {
    refuse(op, name, value, "a number from 2^-100 to 2^100");
  }
}

inline void require_probability(const char* op, std::string_view name, double value) {
  if (!(value > 0 && value < 1)) refuse(op, name, value, "a number between 0 and 1");
}

inline void require_record(const char* op, std::size_t dimension, std::span<const double> x,
                           double y) {
  if (x.size() != dimension) {
    throw Error(
        ErrorCode::kInvalidInput, op,
        fmt::format("the record has {} features; this model takes {}", x.size(), dimension));
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i])) {
      throw Error(ErrorCode::kInvalidInput, op,
                  fmt::format("feature {} is {}; give finite numbers", i, x[i]));
    }
  }
  if (!std::isfinite(y)) refuse(op, "the label", y, "a finite number");
}

}  // namespace discreet::unlearning
