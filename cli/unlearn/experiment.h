#pragma once

#include <nlohmann/json_fwd.hpp>

#include "discreet/unlearning/online/memory_pair.h"

namespace discreet::cli {

// A metric of the log; null if it is not finite.
nlohmann::json metric_json(const unlearning::MemoryPair::Metric& metric);

}  // namespace discreet::cli
