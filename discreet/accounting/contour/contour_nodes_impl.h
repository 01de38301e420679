#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "discreet/accounting/contour/contour_step_impl.h"

namespace discreet::accounting::contour {

// The nodes x_i = i h, i = first..first+size-1, with the tilted weights of one step at order c and
// running bounds of their rounding errors (contour.md, Round-off).
class Nodes {
 public:
  Nodes(const Step& step, double c, double h, std::int64_t first, std::int64_t size);

  double left() const noexcept;  // ends of the window, half a node outside; exact
  double right() const noexcept;
  double log_mass() const noexcept { return log_mass_; }      // K^
  double centre() const noexcept { return centre_; }          // m, weighted mean loss
  double mass_error() const noexcept { return mass_error_; }  // |h sum f / exp(K^) - 1| <= this
  // An upper bound of log(h sum f) at another order over the same nodes.
  double log_sum_upper(double other_c) const;

  // For j = 1..J: the sum of normalised weights times exp(i j dt d), d = loss - m, and its error
  // relative to exp(K^), excluding quadrature.
  struct Wave {
    double re, im, error;
  };
  void waves(double dt, std::span<Wave> out) const;

 private:
  Step step_;
  double h_;
  std::int64_t first_;
  std::size_t size_, padded_;
  std::vector<double> l_, square_, weight_, d_;
  double log_mass_, centre_, mass_error_;
  double loss_error_;     // weighted mean error of d
  double mean_distance_;  // weighted mean of |d|
};

}  // namespace discreet::accounting::contour
