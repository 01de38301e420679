#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "discreet/base/file_descriptor.h"
#include "discreet/random/key.h"

namespace discreet::run {

inline constexpr const char* kStepCountFile = "trace.steps";

// `trace.steps`: the number of `iter` lines that the trace has had, with an HMAC-SHA-256 under a
// key derived from the run's secret (stream "step count"). Lines after the last seal could be cut
// off unnoticed; a resume on other bits charges the larger of this count and the number of lines.
//
// Two lines of fixed length, "discreet-steps-1 COUNT MAC", overwritten in turn after every step and
// not flushed: a killed process loses nothing; after a power failure, unwritten counts are lost.
// While one line is being overwritten, the other one is whole. Earlier versions wrote one line.
class StepCount {
 public:
  // Opens RUN/trace.steps, or creates it with this count. A new file appears with its first line:
  // a process that is killed here leaves no empty one.
  StepCount(const std::filesystem::path& run, const random::Key& secret, std::uint64_t count);
  // A count below the last one replaces both lines.
  void write(std::uint64_t count);

  // The larger count, or one more than it if the other line is damaged: that write was cut off.
  // Empty if there is no such file. Throws kMalformed if it was altered or belongs to another run.
  static std::optional<std::uint64_t> read(const std::filesystem::path& run,
                                           const random::Key& secret);

 private:
  Descriptor file_;
  const random::Key& key_;   // owned by the caller
  int line_ = 0;             // that is written next
  std::uint64_t other_ = 0;  // count of the other line
};

}  // namespace discreet::run
