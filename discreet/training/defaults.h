#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "discreet/config/config_read.h"

namespace discreet::training {

// Settings, "key=value", for the keys that a configuration of a private run leaves out. They follow
// from public quantities only: declared_size N0, the budget (epsilon, delta), and the columns and
// kind of the model. defaults.md says how the numbers were chosen and what they achieve.
//
//   nonfinite              zero: one record cannot stop the run
//   effective_batch_size   B = min(N0, max(512, N0 / 25)), if N0 is given
//   target_steps           1000, or 40 epochs for samplers whose event is the epoch; not if the
//   noise
//                          is given, which then ends the run at the budget
//   mode                   meet_exactly_at_target_steps: the noise is calibrated to the budget; not
//                          if a noise multiplier or another mode is given
//   optimizer.rate         R / (steps C) with R = min(10000, 4 mu N0 / sqrt(columns + 1)), where mu
//   is
//                          epsilon / sqrt(2 log(1.25 / delta)), or sqrt(steps) B / (sigma N0) if
//                          the noise multiplier sigma is given: the noise then moves an output of
//                          the model by about 4 at most; adam: a fortieth of that; at most 1 /
//                          (columns + 1) for the squared error, whose curvature is that large
//   optimizer.floor        noise, for adam
//   optimizer.average      1 - 10 / steps, from 50 steps on: the model is the average of about a
//                          tenth of the iterates
//
// Governed runs and runs without privacy only get `nonfinite`: their noise is not the
// configuration's. Sets nothing that needs a missing quantity. Never throws.
std::vector<std::string> default_settings(const ReadConfig& read);

// The values of these keys in the configuration of an earlier run, for those that `read` leaves
// out: a run continues with the defaults with which it started.
std::vector<std::string> settings_of_run(const ReadConfig& read,
                                         const std::filesystem::path& directory);

}  // namespace discreet::training
