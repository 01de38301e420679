#pragma once

#include <cmath>
#include <span>
#include <string_view>

#include "discreet/base/error.h"

// Argument checks shared by this room.
namespace discreet::unlearning {

[[noreturn]] inline void refuse(const char* op, std::string_view name, double value,
                                std::string_view wanted) {
  invalid_input(op, "{} is {}; expected {}", name, value, wanted);
}

inline void require_positive(const char* op, std::string_view name, double value) {
  if (!(value > 0) || !std::isfinite(value)) refuse(op, name, value, "a finite number above 0");
}

inline void require_not_negative(const char* op, std::string_view name, double value) {
  if (!(value >= 0) || !std::isfinite(value)) {
    refuse(op, name, value, "a finite number that is not negative");
  }
}

// Far from overflow and underflow, so that bounds need not consider them.
inline void require_moderate(const char* op, std::string_view name, double value) {
  if (!(value >= 0x1p-100 && value <= 0x1p100)) {
    refuse(op, name, value, "a number from 2^-100 to 2^100");
  }
}

inline void require_probability(const char* op, std::string_view name, double value) {
  if (!(value > 0 && value < 1)) refuse(op, name, value, "a number in (0, 1)");
}

inline void require_record(const char* op, std::size_t dimension, std::span<const double> x,
                           double y) {
  if (x.size() != dimension) {
    invalid_input(op, "the record has {} features; this model expects {}", x.size(), dimension);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i])) {
      invalid_input(op, "feature {} is {}; it must be finite", i, x[i]);
    }
  }
  if (!std::isfinite(y)) refuse(op, "the label", y, "a finite number");
}

}  // namespace discreet::unlearning
