#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "discreet/mechanism/layout.h"

namespace discreet::mechanism {

// Per-sample gradients of a microbatch, borrowed: one span per tensor of the layout, in its order,
// holding records x elements values, record by record (row-major). The span of a tensor that is not
// private is not read and may be empty.
//   Real: float or double.
template <class Real>
struct PerSampleGradients {
  std::size_t records = 0;
  std::vector<std::span<const Real>> tensors;
};

// A sum of clipped gradients in binary64: all tensors of a layout one after the other; tensors that
// are not private take no room. The accumulator of an optimizer step; raw, hence confidential.
class GradientSum {
 public:
  explicit GradientSum(const ModelLayout& layout);  // zeros

  std::size_t tensors() const noexcept { return offsets_.size() - 1; }
  // The coordinates of tensor i; empty if it is not private.
  std::span<double> tensor(std::size_t i) noexcept;
  std::span<const double> tensor(std::size_t i) const noexcept;
  // Whether it is of this layout: as many tensors, room where it has private ones.
  bool is_of(const ModelLayout& layout) const noexcept;
  // The same memory with zeros in it.
  GradientSum cleared() && noexcept;
  // All of them.
  std::span<double> values() noexcept { return values_; }
  std::span<const double> values() const noexcept { return values_; }

 private:
  std::vector<double> values_;
  std::vector<std::size_t> offsets_;
};

}  // namespace discreet::mechanism
