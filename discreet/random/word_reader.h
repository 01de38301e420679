#pragma once

#include <array>
#include <cstdint>

#include "discreet/random/generator.h"

namespace discreet::random {

// The 64-bit words of one index's reserve, in order, for rejection loops. A loop may take any
// number of them without affecting other indices.
class WordReader {
 public:
  // source: must outlive the reader. index: relative to position.base.
  WordReader(BlockSource& source, const Position& position, std::uint64_t index)
      : source_(source), high_(position.high), block_(position.reserve(index)) {}

  // The next word. Throws kRngConsumptionViolation after the 8192 words of the reserve; samplers
  // need a few dozen (discrete.md, section 5).
  std::uint64_t next();

 private:
  static constexpr std::size_t kBatch = 8;  // one ChaCha block

  BlockSource& source_;
  std::uint64_t high_;
  std::uint64_t block_;
  std::uint64_t taken_ = 0;
  std::array<std::uint64_t, kBatch> batch_;
};

}  // namespace discreet::random
