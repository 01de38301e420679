#include "discreet/random/position.h"

#include "discreet/base/error.h"

namespace discreet::random {

Position Position::at(std::uint64_t step, std::uint64_t tensor, std::uint64_t coordinate) {
  if (step >= kStepLimit) {
    invalid_config("Position::at",
                   "step {} does not fit the per-step counter layout; stay below {} or set "
                   "noise_seed_per_step to false",
                   step, kStepLimit);
  }
  if (tensor >= kTensorLimit) {
    invalid_config("Position::at", "tensor index {} does not fit the counter layout; stay below {}",
                   tensor, kTensorLimit);
  }
  return {(step << 40) + tensor, 0, coordinate};
}

void Position::require_indices(std::uint64_t first, std::uint64_t count) const {
  if (base > kIndexLimit || first > kIndexLimit - base || count > kIndexLimit - base - first) {
    invalid_input("Position", "{} counters from {} on exceed the {} that a tensor owns; split it",
                  count, first, kIndexLimit);
  }
}

void SequentialCounter::declare(std::uint64_t indices) {
  settle();
  if (offset_ > kIndexLimit || indices > kIndexLimit - offset_) {
    fail(ErrorCode::kRngConsumptionViolation, "SequentialCounter::declare",
         "{} more counters after {} exceed the {} of a key; use a fresh key", indices, offset_,
         kIndexLimit);
  }
  declared_end_ = offset_ + indices;
}

Position SequentialCounter::take(std::uint64_t indices) {
  if (indices > declared_end_ - offset_) {
    fail(ErrorCode::kRngConsumptionViolation, "SequentialCounter::take",
         "{} counters requested, but only {} of the declared ones are left; declare the "
         "consumption of the step",
         indices, declared_end_ - offset_);
  }
  const Position position{0, offset_, 0};
  offset_ += indices;
  return position;
}

void SequentialCounter::settle() const {
  if (offset_ != declared_end_) {
    fail(ErrorCode::kRngConsumptionViolation, "SequentialCounter::settle",
         "{} of the declared counters were not consumed; declare the consumption of the step",
         declared_end_ - offset_);
  }
}

}  // namespace discreet::random
