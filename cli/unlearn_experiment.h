#pragma once

#include <CLI/CLI.hpp>

namespace discreet::cli {

// `discreet unlearn experiment`: the specification's workload, its log and a page about it.
void add_unlearn_experiment(CLI::App& unlearn);

}  // namespace discreet::cli
