#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "discreet/layout/layout.h"

namespace discreet {

// Per-sample gradients of a microbatch, borrowed: one span per tensor of the layout, in layout
// order, with records x elements values in row-major order. The span of a tensor that is not
// private is not read and may be empty.
//   Real: float or double.
template <class Real>
struct PerSampleGradients {
  std::size_t records = 0;
  std::vector<std::span<const Real>> tensors;
};

// A sum of clipped gradients in binary64: the private tensors of a layout, one after the other. It
// accumulates an optimizer step. It contains no noise and is therefore confidential.
class GradientSum {
 public:
  explicit GradientSum(const ModelLayout& layout);  // zeros
  GradientSum(const GradientSum& other);
  GradientSum& operator=(const GradientSum& other);
  GradientSum(GradientSum&&) noexcept = default;
  GradientSum& operator=(GradientSum&&) noexcept = default;
  ~GradientSum() = default;

  std::size_t tensors() const noexcept { return offsets_.size() - 1; }
  // The coordinates of tensor i; empty if it is not private.
  std::span<double> tensor(std::size_t i) noexcept;
  std::span<const double> tensor(std::size_t i) const noexcept;
  // True if it matches this layout: as many tensors, and space exactly for the private ones.
  bool is_of(const ModelLayout& layout) const noexcept;
  // The same memory as a sum of zeros that are not written yet; until then the accessors show old
  // values. The first addition must overwrite them, or call settle.
  GradientSum emptied() && noexcept;
  bool is_written() const noexcept { return written_; }
  // Writes the zeros if they are not written yet.
  void settle(int threads = 1);
  // Declares that every value has been written.
  void set_written() noexcept { written_ = true; }
  // Another sum of the same layout with uninitialised values.
  GradientSum unset() const;
  // All coordinates.
  std::span<double> values() noexcept { return {values_.get(), offsets_.back()}; }
  std::span<const double> values() const noexcept { return {values_.get(), offsets_.back()}; }

 private:
  struct Free {
    void operator()(double* values) const noexcept;
  };
  using Values = std::unique_ptr<double[], Free>;

  GradientSum() = default;
  static Values room(std::size_t count);

  std::vector<std::size_t> offsets_;
  Values values_;  // their number is the last offset
  bool written_ = true;
};

}  // namespace discreet
