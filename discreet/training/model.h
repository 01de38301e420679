#pragma once

#include <filesystem>
#include <vector>

#include "discreet/config/config.h"
#include "discreet/data/dataset.h"
#include "discreet/training/network.h"

namespace discreet::training {

// What the section `model` makes of data.

// The network for records of so many inputs and classes (0: numbers). Throws kInvalidDpConfig,
// naming key and remedy, if model.kind does not fit: softmax needs classes, linear numbers, mlp
// hidden layers.
NetworkShape shape_of(const ModelConfig& model, std::size_t inputs, std::size_t classes);

// The key of public randomness: initialisation and feature maps.
random::Key public_key(const DpConfig& privacy);

// The data as the network takes them: x replaced by what model.features makes of each record.
void map_features(const Config& config, data::Dataset& data, int threads);

// The trained model of a run, for prediction.
struct TrainedModel {
  Config config;
  BoundsMap released_bounds;          // of columns whose bounds the run released
  std::vector<std::string> features;  // csv: by name, in the order that the model takes them
  Network network;
};
// Reads config.yaml, model.safetensors and, for released bounds, trace.jsonl. Throws kIoError,
// kMalformed, and kInvalidInput, naming what is missing or does not fit.
TrainedModel load_model(const std::filesystem::path& run);
// The outputs for records that were read as the run's configuration says: [rows][outputs]. Columns
// of a CSV file may be in another order than those of the file that was trained on. Throws
// kInvalidInput for records with other features.
std::vector<float> predict(const TrainedModel& model, data::Dataset data, int threads = 1);

}  // namespace discreet::training
