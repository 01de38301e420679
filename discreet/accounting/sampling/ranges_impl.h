#pragma once

#include "discreet/base/error.h"

namespace discreet::accounting {

// Rejects arguments of `op` for which it has no bound.
struct Ranges {
  const char* op;

  void operator()(bool ok, const char* sentence, double value) const {
    if (!ok) invalid_config(op, "{} is {}", sentence, value);
  }
  void sigma(double value) const {
    (*this)(value >= 0.1 && value <= 1000, "sigma must be in [0.1, 1000]; it", value);
  }
  void delta(double value) const {
    (*this)(value >= 1e-100 && value < 1, "delta must be in [1e-100, 1); it", value);
  }
  void relative_width(double value) const {
    (*this)(value >= 1e-6 && value <= 1, "relative_width must be in [1e-6, 1]; it", value);
  }
};

}  // namespace discreet::accounting
