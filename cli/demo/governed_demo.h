#pragma once

#include "cli/training_run.h"

namespace discreet::cli {

// `discreet demo --governed`: a corpus of signed contributions from its first key to its ledger,
// everything under the run's directory.
void run_governed_demo(const TrainingOptions& options);

}  // namespace discreet::cli
