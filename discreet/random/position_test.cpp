#include "discreet/random/position.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>
#include <vector>

#include "discreet/base/error_testing.h"

namespace discreet::random {
namespace {

TEST(Position, HighHalfIsStepTimesTwoTo40PlusTensor) {
  EXPECT_EQ(Position::at(0, 0).high, 0u);
  EXPECT_EQ(Position::at(3, 5).high, (std::uint64_t{3} << 40) + 5);
  EXPECT_EQ(Position::at(kStepLimit - 1, kTensorLimit - 1).high, ~std::uint64_t{0});
  EXPECT_EQ(Position::at(3, 5, 9).block(4), 4u) << "the low half is the block alone";
}

TEST(Position, RefusesStepsAndTensorsThatOverflowTheLayout) {
  EXPECT_EQ(code_of([] { Position::at(kStepLimit, 0); }), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code_of([] { Position::at(0, kTensorLimit); }), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code_of([] { Position::at(~std::uint64_t{0}, 0); }), ErrorCode::kInvalidDpConfig);
}

TEST(Position, RefusesIndicesBeyondTheTensorsCounters) {
  const Position p = Position::at(0, 0);
  EXPECT_NO_THROW(p.require_indices(kIndexLimit - 1, 1));
  EXPECT_EQ(code_of([&] { p.require_indices(kIndexLimit - 1, 2); }), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of([&] { p.require_indices(~std::uint64_t{0}, 2); }), ErrorCode::kInvalidInput);
}

// The counters of an index: its block and the first and last of its reserve. Ranges are intervals,
// so disjoint ends of distinct indices mean disjoint ranges.
using Counter = std::pair<std::uint64_t, std::uint64_t>;

TEST(Position, NoTwoStepTensorIndexTriplesShareACounter) {
  std::mt19937_64 engine(1);
  const auto pick = [&](std::uint64_t limit) {
    // Corners, powers of two and anything between.
    switch (engine() % 4) {
      case 0: return engine() % 3;
      case 1: return limit - 1 - engine() % 3;
      case 2: return ((std::uint64_t{1} << (engine() % 52)) + engine() % 3) % limit;
      default: return engine() % limit;
    }
  };
  std::set<std::vector<std::uint64_t>> triples;
  std::set<std::pair<Counter, Counter>> ranges;  // [first, last] counters
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t step = pick(kStepLimit), tensor = pick(kTensorLimit);
    const std::uint64_t index = pick(kIndexLimit);
    if (!triples.insert({step, tensor, index}).second) continue;
    const Position p = Position::at(step, tensor);
    ranges.insert({{p.high, p.block(index)}, {p.high, p.block(index)}});
    ranges.insert({{p.high, p.reserve(index)}, {p.high, p.reserve(index) + kReserveBlocks - 1}});
  }
  ASSERT_EQ(ranges.size(), 2 * triples.size());
  for (auto here = ranges.begin(), next = std::next(here); next != ranges.end(); ++here, ++next) {
    EXPECT_LE(here->first, here->second) << "a reserve wraps around";
    EXPECT_LT(here->second, next->first);
  }
}

TEST(SequentialCounter, GivesConsecutiveRangesOverSteps) {
  SequentialCounter counter;
  counter.declare(10);
  EXPECT_EQ(counter.take(4).block(0), 0u);
  EXPECT_EQ(counter.take(6).block(5), 9u);
  counter.settle();
  counter.declare(2);
  EXPECT_EQ(counter.take(2).block(0), 10u);
  counter.settle();
  EXPECT_EQ(counter.offset(), 12u);
  SequentialCounter resumed(counter.offset());
  resumed.declare(1);
  EXPECT_EQ(resumed.take(1).block(0), 12u);
}

TEST(SequentialCounter, RefusesMoreOrLessThanWasDeclared) {
  SequentialCounter counter;
  counter.declare(10);
  counter.take(4);
  EXPECT_EQ(code_of([&] { counter.take(7); }), ErrorCode::kRngConsumptionViolation);
  EXPECT_EQ(counter.offset(), 4u) << "a refused draw takes nothing";
  EXPECT_EQ(code_of([&] { counter.settle(); }), ErrorCode::kRngConsumptionViolation);
  EXPECT_EQ(code_of([&] { counter.declare(1); }), ErrorCode::kRngConsumptionViolation);
  counter.take(6);
  EXPECT_NO_THROW(counter.settle());
  EXPECT_EQ(code_of([&] { counter.take(1); }), ErrorCode::kRngConsumptionViolation);
  EXPECT_EQ(code_of([&] { counter.declare(kIndexLimit); }), ErrorCode::kRngConsumptionViolation);
}

}  // namespace
}  // namespace discreet::random
