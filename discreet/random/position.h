#pragma once

#include <cstdint>

namespace discreet::random {

// Every generator of this room is a function from a 128-bit counter to a block of 128 bits. The
// counter is split into two halves, high and low. This file decides who owns which counters.
//
//   high  =  step · 2^40 + tensor          (layout per step; 0 in the sequential layout)
//   low   =  i                             the block of index i,              i < 2^51
//   low   =  2^63 + i · 2^12 + j           the reserve of index i,            j < 2^12
//
// An *index* is what one use consumes: a pair of Gaussians, one discrete sample, and so on; each
// family says how many indices n coordinates take. Index i owns the block i, drawn in bulk, and a
// reserve of 4096 more blocks that only rare branches and rejection loops touch. So the consumption
// of a family is a function of n alone, whatever was rejected, and two different
// (high, index) pairs never share a counter (4096 · 2^51 = 2^63).
inline constexpr std::uint64_t kStepLimit = std::uint64_t{1} << 24;
inline constexpr std::uint64_t kTensorLimit = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kIndexLimit = std::uint64_t{1} << 51;
inline constexpr std::uint64_t kReserveBlocks = std::uint64_t{1} << 12;

// Where a value is: which tensor of which step, and which coordinate of it.
struct Position {
  std::uint64_t high = 0;        // the high half of the counter
  std::uint64_t base = 0;        // the index at which this tensor begins
  std::uint64_t coordinate = 0;  // the first coordinate drawn, counted from the tensor's first

  // The layout per step (`noise_seed_per_step: true`): the specification's
  // counter t·2^40 + param_index_hash is the high half, and base is 0.
  //   step:   t < 2^24.   tensor: the tensor's global index < 2^40.
  // Throws kInvalidDpConfig beyond, where two (step, tensor) pairs would share counters.
  static Position at(std::uint64_t step, std::uint64_t tensor, std::uint64_t coordinate = 0);

  // The same tensor from another coordinate on.
  Position from(std::uint64_t first) const noexcept { return {high, base, first}; }

  // The low halves that index `base + i` owns.
  std::uint64_t block(std::uint64_t i) const noexcept { return base + i; }
  std::uint64_t reserve(std::uint64_t i) const noexcept {
    return (std::uint64_t{1} << 63) + (base + i) * kReserveBlocks;
  }

  // Throws kInvalidInput unless the `count` indices from base + first on are below kIndexLimit.
  // Every draw checks its range with this once, before anything is written.
  void require_indices(std::uint64_t first, std::uint64_t count) const;
};

// The sequential layout (`noise_seed_per_step: false`): tensors take consecutive indices under
// high = 0, over all steps, and a step must consume exactly what it declared.
//
//   SequentialCounter counter;              // or from the offset of a checkpoint
//   counter.declare(gaussian_indices(n1) + gaussian_indices(n2));
//   add_gaussian(noise, counter.take(gaussian_indices(n1)), …);
//   add_gaussian(noise, counter.take(gaussian_indices(n2)), …);
//   counter.settle();                       // throws kRngConsumptionViolation unless all is used
//
// A key uses one layout or the other for its whole life.
class SequentialCounter {
 public:
  explicit SequentialCounter(std::uint64_t offset = 0) : offset_(offset), declared_end_(offset) {}

  // Begins a step that will consume `indices`. Throws kRngConsumptionViolation when the step
  // before was not settled, or when the offset would pass kIndexLimit.
  void declare(std::uint64_t indices);

  // The next `indices`. Throws kRngConsumptionViolation, and takes nothing, when fewer are left of
  // the declaration.
  Position take(std::uint64_t indices);

  // Ends the step. Throws kRngConsumptionViolation when less was taken than declared.
  void settle() const;

  // How many indices were consumed since the beginning; what a checkpoint stores.
  std::uint64_t offset() const noexcept { return offset_; }

 private:
  std::uint64_t offset_;
  std::uint64_t declared_end_;
};

}  // namespace discreet::random
