#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "discreet/layout/gradients.h"
#include "discreet/layout/route_plan.h"
#include "discreet/mechanism/clip/clip_batch.h"

namespace discreet::mechanism {

// The parts that each record may reach. Other parts are not read.
struct Permits {
  std::span<const std::uint32_t> classes;   // one per record; kNoRoute: nothing
  std::span<const std::uint8_t> permitted;  // class, then part
  std::size_t parts = 0;

  bool operator()(std::size_t record, std::size_t part) const noexcept {
    const std::uint32_t c = classes[record];
    return c != kNoRoute && permitted[c * parts + part] != 0;
  }
};

// Coordinates [begin, end) of a tensor; they belong to one part.
struct CoordinateRange {
  std::size_t tensor;
  std::size_t begin;
  std::size_t end;
  std::uint32_t part;
};

// Throws kInvalidGradient, naming the tensor, unless every private tensor has records x elements
// values.
template <class Real>
void check_gradients(const ModelLayout& layout, const PerSampleGradients<Real>& gradients);

// Throw kInvalidDpConfig unless the partition belongs to this layout, and kInvalidInput unless the
// sum does.
void check_partition(const ModelLayout& layout, const Partition& partition);
void check_sum(const char* op, const ModelLayout& layout, const GradientSum& sum);

// Throws kInvalidDpConfig for backward passes if the method needs each record's own gradient.
void check_form(const char* op, const ClipMethod& method, const Microbatch& microbatch);

// sum_j += trunc(s x_j / grid) for the coordinates of the ranges. scale(record, range): s; 0 skips
// the record, whose values are not read then.
template <class Real, class Scale>
void add_on_grid(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                 std::span<const CoordinateRange> ranges, const Scale& scale, double grid,
                 GradientSum& sum) {
  for (const CoordinateRange& range : ranges) {
    const std::size_t n = layout.elements(range.tensor);
    const auto out = sum.tensor(range.tensor);
    for (std::size_t i = 0; i < gradients.records; ++i) {
      const double s = scale(i, range);
      if (s == 0) continue;
      const Real* row = gradients.tensors[range.tensor].data() + i * n;
      for (std::size_t k = range.begin; k < range.end; ++k)
        out[k] += std::trunc(s * static_cast<double>(row[k]) / grid);
    }
  }
}

}  // namespace discreet::mechanism
