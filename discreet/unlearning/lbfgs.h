#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "discreet/base/cbor.h"

namespace discreet::unlearning {

// Bounds of the eigenvalues of a Hessian approximation, 0 < c <= C.
struct CurvatureBounds {
  double c;
  double C;
};

// The limited-memory BFGS approximation of a Hessian from the last few pairs s (change of
// parameters) and y (change of gradient):
//
//   B = sigma I + sum_i (y_i y_i' / y_i's_i - b_i b_i' / s_i'b_i),   b_i = B_i s_i,
//   sigma = y'y / s'y of the newest pair,
//
// where B_i is the same sum over the pairs before i. Without pairs B = I. B is symmetric positive
// definite because only pairs with y's > 0 are accepted.
class Lbfgs {
 public:
  // dimension >= 1; memory: maximum number of pairs, >= 1.
  explicit Lbfgs(std::size_t dimension, std::size_t memory = 10);

  // Adds the pair and drops the oldest beyond the memory. Returns false and ignores a pair with y's
  // <= 1e-10 |s| |y| or with a value that is not finite. Throws kInvalidInput for a wrong length.
  bool update(std::span<const double> s, std::span<const double> y);

  // The descent direction -B^-1 gradient, by the two-loop recursion.
  std::vector<double> direction(std::span<const double> gradient) const;

  // The extreme eigenvalues of B from its low-rank form: sigma (if the pairs do not span the
  // space), and the eigenvalues of B restricted to the span of the y_i and b_i. Relative accuracy
  // about 1e-10 of C. An estimate: nothing certified depends on it. Empty if there is no pair, or
  // if rounding leaves no positive bound.
  std::optional<CurvatureBounds> bounds() const;

  std::size_t pairs() const noexcept { return pairs_.size(); }
  void clear() noexcept { pairs_.clear(); }

  cbor::Value save() const;
  void restore(
      const cbor::Value& value);  // throws kMalformed for other pairs; nothing changed then

 private:
  struct Pair {
    std::vector<double> s, y;
    double sy;
  };
  std::size_t dimension_;
  std::size_t memory_;
  std::deque<Pair> pairs_;
};

}  // namespace discreet::unlearning
