#pragma once

#include <optional>
#include <string>
#include <vector>

#include "discreet/base/hash.h"
#include "discreet/config/config.h"
#include "discreet/data/dataset.h"
#include "discreet/mechanism/step/forecast.h"
#include "discreet/training/corpus.h"

namespace discreet::training {

// The outcome of a run of a configuration, without executing its steps. Public if the number of
// records is.
struct Plan {
  Digest config_hash{};          // as in the run's header
  mechanism::Forecast forecast;  // steps and epsilon of the completed run
  std::uint64_t parameters = 0;  // number of trained parameters
  std::vector<std::string> not_private;
  std::vector<std::string> notes;            // sentences for the user
  std::vector<std::string> warnings;         // the same; confidential
  std::vector<Corpus::ClassBounds> classes;  // of a governed run: its actual noise and bounds
  // Clipping from backward passes (ghost, fused) charges more rounding than clipping explicit
  // gradients. This is the epsilon of the same steps with explicit gradients; empty if the run
  // already uses them, or cannot.
  std::optional<double> epsilon_explicit;
};

// Opens the data and everything else that the run will open, and throws what it would throw before
// its first step, with the same sentences (setup.h). Writes nothing and releases nothing. It reads
// the records to check that they are readable; the plan depends only on their number and width.
Plan plan_run(const Config& resolved, int threads = 1,
              data::BadRow on_bad_row = data::BadRow::kRefuse);

// Mechanism::ghost_bound() of the run of a configuration, whatever its ghost_bound_hash is.
std::string ghost_bound(const Config& resolved, int threads = 1,
                        data::BadRow on_bad_row = data::BadRow::kRefuse);

}  // namespace discreet::training
