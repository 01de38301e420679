#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/options/command.h"
#include "discreet/training/train.h"

namespace discreet::cli {

// What `train` and `demo` share: options, progress, Ctrl-C, and what they print at the end.
struct TrainingOptions {
  std::string out;
  bool resume = false;
  std::vector<std::string> settings;
  std::string threads, seed, insecure_seed;
  std::string on_bad_row = "reject";
  bool json = false;
};

// out: the default of --out.
std::shared_ptr<TrainingOptions> add_training_options(Command& command, const char* out);

// Trains by this configuration and prints the result. again: how to continue after Ctrl-C, without
// --resume.
void run_training(const TrainingOptions& options, std::string_view yaml, std::string_view name,
                  const std::filesystem::path& relative_to, const std::string& again);

// The same in parts. each_step: called after every step; may be empty.
struct Outcome {
  training::RunResult result;
  std::optional<std::string> report;  // its file
};
Outcome train_and_report(const TrainingOptions& options, std::string_view yaml,
                         std::string_view name, const std::filesystem::path& relative_to,
                         const std::function<void(const training::Progress&)>& each_step = {});
nlohmann::json to_json(const Outcome& outcome);
void print_text(const Outcome& outcome, const std::string& again);

// The settings of --set, --seed and --insecure-seed, and what --on-bad-row says.
std::vector<std::string> training_settings(std::vector<std::string> settings,
                                           const std::string& seed,
                                           const std::string& insecure_seed);
data::BadRow bad_row(const std::string& text);

}  // namespace discreet::cli
