#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "discreet/unlearning/online/memory_pair.h"

namespace discreet::cli {

// `discreet unlearn experiment`: the specification's workload, its log and a page about it.
void add_unlearn_experiment(CLI::App& unlearn);

// A metric of the log; null if it is not finite.
nlohmann::json metric_json(const unlearning::MemoryPair::Metric& metric);

}  // namespace discreet::cli
