#pragma once

#include <cstdint>

namespace discreet::random {

// Every generator of this room is a function from a 128-bit counter to a block of 128 bits. The
// counter has two halves, high and low. This file defines which counters each use owns.
//
//   high  =  step · 2^40 + tensor          (per-step layout; 0 in the sequential layout)
//   low   =  i                             the block of index i,              i < 2^51
//   low   =  2^63 + i · 2^12 + j           the reserve of index i,            j < 2^12
//
// An *index* is the unit of consumption: a pair of Gaussians, one discrete sample, and so on. Each
// family states how many indices n coordinates consume. Index i owns block i, which is drawn in
// bulk, and a reserve of 4096 more blocks, used only by rare branches and rejection loops. So the
// consumption of a family depends only on n, not on rejections, and two different (high, index)
// pairs never share a counter (4096 · 2^51 = 2^63).
inline constexpr std::uint64_t kStepLimit = std::uint64_t{1} << 24;
inline constexpr std::uint64_t kTensorLimit = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kIndexLimit = std::uint64_t{1} << 51;
inline constexpr std::uint64_t kReserveBlocks = std::uint64_t{1} << 12;

// The place of a value: a step, a tensor and a coordinate of the tensor.
struct Position {
  std::uint64_t high = 0;        // the high half of the counter
  std::uint64_t base = 0;        // the index at which this tensor starts
  std::uint64_t coordinate = 0;  // the first coordinate to draw, from the tensor's start

  // The per-step layout (`noise_seed_per_step: true`): high is the counter t·2^40 +
  // param_index_hash of the specification, and base is 0.
  //   step:   t < 2^24.   tensor: the tensor's global index < 2^40.
  // Throws kInvalidDpConfig for larger values, because two (step, tensor) pairs would share
  // counters.
  static Position at(std::uint64_t step, std::uint64_t tensor, std::uint64_t coordinate = 0);

  // The same tensor, starting at another coordinate.
  Position from(std::uint64_t first) const noexcept { return {high, base, first}; }

  // The low halves that index `base + i` owns.
  std::uint64_t block(std::uint64_t i) const noexcept { return base + i; }
  std::uint64_t reserve(std::uint64_t i) const noexcept {
    return (std::uint64_t{1} << 63) + (base + i) * kReserveBlocks;
  }

  // Throws kInvalidInput unless the `count` indices from base + first on are below kIndexLimit.
  // Every draw checks its whole range once, before it writes anything.
  void require_indices(std::uint64_t first, std::uint64_t count) const;
};

// The sequential layout (`noise_seed_per_step: false`): tensors take consecutive indices under high
// = 0 over all steps, and a step must consume exactly the number it declared.
//
//   SequentialCounter counter;              // or from the offset of a checkpoint
//   counter.declare(gaussian_indices(n1) + gaussian_indices(n2));
//   add_gaussian(noise, counter.take(gaussian_indices(n1)), …);
//   add_gaussian(noise, counter.take(gaussian_indices(n2)), …);
//   counter.settle();                       // throws kRngConsumptionViolation unless all is used
//
// A key must use the same layout for its whole life.
class SequentialCounter {
 public:
  explicit SequentialCounter(std::uint64_t offset = 0) : offset_(offset), declared_end_(offset) {}

  // Starts a step that will consume `indices`. Throws kRngConsumptionViolation if the previous step
  // was not settled, or if the offset would exceed kIndexLimit.
  void declare(std::uint64_t indices);

  // The next `indices`. If fewer are left of the declaration, throws kRngConsumptionViolation and
  // takes none.
  Position take(std::uint64_t indices);

  // Ends the step. Throws kRngConsumptionViolation if fewer indices were taken than declared.
  void settle() const;

  // The number of indices consumed since the start; stored in checkpoints.
  std::uint64_t offset() const noexcept { return offset_; }

 private:
  std::uint64_t offset_;
  std::uint64_t declared_end_;
};

}  // namespace discreet::random
