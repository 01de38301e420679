#include "discreet/random/position.h"

#include <fmt/format.h>

#include "discreet/base/error.h"

namespace discreet::random {

Position Position::at(std::uint64_t step, std::uint64_t tensor, std::uint64_t coordinate) {
  if (step >= kStepLimit) {
    throw Error(ErrorCode::kInvalidDpConfig, "Position::at",
                fmt::format("step {} does not fit the counter layout per step; stay below {} or "
                            "set noise_seed_per_step to false",
                            step, kStepLimit));
  }
  if (tensor >= kTensorLimit) {
    throw Error(ErrorCode::kInvalidDpConfig, "Position::at",
                fmt::format("tensor index {} does not fit the counter layout; stay below {}",
                            tensor, kTensorLimit));
  }
  return {(step << 40) + tensor, 0, coordinate};
}

void Position::require_indices(std::uint64_t first, std::uint64_t count) const {
  if (base > kIndexLimit || first > kIndexLimit - base || count > kIndexLimit - base - first) {
    throw Error(ErrorCode::kInvalidInput, "Position",
                fmt::format("{} counters from {} on pass the {} that a tensor owns; split it",
                            count, first, kIndexLimit));
  }
}

void SequentialCounter::declare(std::uint64_t indices) {
  settle();
  if (offset_ > kIndexLimit || indices > kIndexLimit - offset_) {
    throw Error(ErrorCode::kRngConsumptionViolation, "SequentialCounter::declare",
                fmt::format("{} more counters after {} pass the {} of a key; use a fresh key",
                            indices, offset_, kIndexLimit));
  }
  declared_end_ = offset_ + indices;
}

Position SequentialCounter::take(std::uint64_t indices) {
  if (indices > declared_end_ - offset_) {
    throw Error(ErrorCode::kRngConsumptionViolation, "SequentialCounter::take",
                fmt::format("{} counters asked, {} left of those declared; declare what the step "
                            "consumes",
                            indices, declared_end_ - offset_));
  }
  const Position position{0, offset_, 0};
  offset_ += indices;
  return position;
}

void SequentialCounter::settle() const {
  if (offset_ != declared_end_) {
    throw Error(ErrorCode::kRngConsumptionViolation, "SequentialCounter::settle",
                fmt::format("{} of the declared counters were not consumed; declare what the step "
                            "consumes",
                            declared_end_ - offset_));
  }
}

}  // namespace discreet::random
