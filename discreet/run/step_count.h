#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "discreet/base/file_descriptor_impl.h"
#include "discreet/random/key.h"

namespace discreet::run {

inline constexpr const char* kStepCountFile = "trace.steps";

// `trace.steps`: how many `iter` lines the trace has had, with an HMAC-SHA-256 under a key derived
// from the run's secret (stream "step count"). Lines after the last seal could be cut off
// unnoticed; a resume on other bits charges by the larger of this count and the lines.
//
// One line of fixed length, "discreet-steps-1 COUNT MAC", overwritten in place after every step and
// not flushed: a killed process loses nothing, a machine that loses power what it had not written.
class StepCount {
 public:
  // Opens, or makes, RUN/trace.steps.
  StepCount(const std::filesystem::path& run, const random::Key& secret);
  void write(std::uint64_t count);

  // None if there is no such file. Throws kMalformed if it was altered or is of another run.
  static std::optional<std::uint64_t> read(const std::filesystem::path& run,
                                           const random::Key& secret);

 private:
  Descriptor file_;
  const random::Key& key_;  // kept by the caller
};

}  // namespace discreet::run
