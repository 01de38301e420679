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

// What a run of a configuration will be, without its steps. Public, if the number of records is.
struct Plan {
  Digest config_hash{};          // as the run's header will have it
  mechanism::Forecast forecast;  // steps and epsilon of the completed run
  std::uint64_t parameters = 0;  // that are trained
  std::vector<std::string> not_private;
  std::vector<std::string> notes;            // sentences for a person
  std::vector<Corpus::ClassBounds> classes;  // of a governed run: its real noise and bounds
  // Clipping from backward passes (ghost, fused) charges more rounding than clipping gradients of
  // each record. What the run would spend, over the same steps, by the latter; none if it takes
  // that already, or could not.
  std::optional<double> epsilon_explicit;
};

// Opens the data and everything else that the run will open, and throws what it would throw before
// its first step, in the same words (setup.h). Writes nothing and releases nothing. It reads the
// records to see whether they can be read; none of the plan depends on them but through their
// number and width.
Plan plan_run(const Config& resolved, int threads = 1,
              data::BadRow on_bad_row = data::BadRow::kRefuse);

}  // namespace discreet::training
