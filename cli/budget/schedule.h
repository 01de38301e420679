#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace discreet::cli {

// One line of a schedule: Gaussian steps on Poisson subsamples.
struct ScheduledSteps {
  double noise_multiplier;
  double sampling_rate;
  std::uint64_t count;
};

// Reads JSON lines, one {"noise_multiplier": s, "sampling_rate": q, "steps": n} each, and hands
// them over in order; blank lines are skipped. One line is in memory at a time. `path` "-" is
// stdin. Throws Error naming file, line and value: kInvalidDpConfig for a line that is not such an
// object, has an unknown, missing or repeated key, or that `take` rejects; kIoError if the file
// cannot be read to its end.
void read_schedule(const std::string& path, const std::function<void(const ScheduledSteps&)>& take);

}  // namespace discreet::cli
