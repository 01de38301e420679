#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "discreet/layout/gradients.h"
#include "discreet/layout/route_plan.h"
#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {

// Which parts each record may reach. What it may not reach is not read.
struct Permits {
  std::span<const std::uint32_t> classes;   // one per record; kNoRoute: nothing
  std::span<const std::uint8_t> permitted;  // class, then part
  std::size_t parts = 0;

  bool operator()(std::size_t record, std::size_t part) const noexcept {
    const std::uint32_t c = classes[record];
    return c != kNoRoute && permitted[c * parts + part] != 0;
  }
};

// Coordinates [begin, end) of a tensor that belong to a part.
struct CoordinateRange {
  std::size_t tensor;
  std::size_t begin;
  std::size_t end;
  std::uint32_t part;
};

// kInvalidGradient, naming the tensor, unless there are records x elements values of every private
// one.
template <class Real>
void check_gradients(const ModelLayout& layout, const PerSampleGradients<Real>& gradients);

}  // namespace discreet::mechanism
