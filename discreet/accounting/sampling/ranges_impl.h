#pragma once

#include <fmt/format.h>

#include "discreet/base/error.h"

namespace discreet::accounting {

// Refuses, in the name of `op`, what it gives no bound for.
struct Ranges {
  const char* op;

  void operator()(bool ok, const char* sentence, double value) const {
    if (!ok) throw Error(ErrorCode::kInvalidDpConfig, op, fmt::format("{} is {}", sentence, value));
  }
  void sigma(double value) const {
    (*this)(value >= 0.1 && value <= 1000, "sigma must lie in [0.1, 1000]; it", value);
  }
  void delta(double value) const {
    (*this)(value >= 1e-100 && value < 1, "delta must lie in [1e-100, 1); it", value);
  }
  void relative_width(double value) const {
    (*this)(value >= 1e-6 && value <= 1, "relative_width must lie in [1e-6, 1]; it", value);
  }
};

}  // namespace discreet::accounting
