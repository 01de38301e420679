#pragma once

#include <string>

#include "discreet/accounting/pld.h"

namespace discreet::cli {

// Reads JSON lines, one {"noise_multiplier": s, "sampling_rate": q, "steps": n} each, into the
// accountant; blank lines are passed over. One line is in memory at a time. `path` "-" is stdin.
// Throws Error naming file, line and value: kInvalidDpConfig for a line that is no such object, has
// an unknown, missing or repeated key or a value out of range; kIoError if the file cannot be read.
void read_schedule(const std::string& path, accounting::PldAccountant& accountant);

}  // namespace discreet::cli
