#include "discreet/random/word_reader.h"

#include "discreet/base/error.h"

namespace discreet::random {

std::uint64_t WordReader::next() {
  if (taken_ == 2 * kReserveBlocks) {
    fail(ErrorCode::kRngConsumptionViolation, "WordReader",
         "a rejection loop used up the 8192 words of its coordinate; the generator is broken");
  }
  const std::size_t place = taken_ % kBatch;
  if (place == 0) source_.read(high_, block_ + taken_ / 2, batch_);
  ++taken_;
  return batch_[place];
}

}  // namespace discreet::random
