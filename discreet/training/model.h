#pragma once

#include <filesystem>
#include <vector>

#include "discreet/base/bytes.h"
#include "discreet/config/config.h"
#include "discreet/data/dataset.h"
#include "discreet/training/network.h"

namespace discreet::training {

// Builds the model of the section `model` for given data.

// The network for records with this many inputs and classes (0: numbers). Throws kInvalidDpConfig,
// naming key and remedy, if model.kind does not fit: softmax needs classes, linear needs numbers,
// mlp needs hidden layers.
NetworkShape shape_of(const ModelConfig& model, std::size_t inputs, std::size_t classes);

// The key of public randomness: initialisation and feature maps.
random::Key public_key(const DpConfig& privacy);

// Replaces x by the features that model.features computes from each record.
void map_features(const Config& config, data::Dataset& data, int threads);

// The trained model of a run, for prediction.
struct TrainedModel {
  Config config;
  BoundsMap released_bounds;          // of columns whose bounds the run released
  std::vector<std::string> features;  // csv: names, in the order of the model's inputs
  Network network;
};
// The model from the bytes of a model.safetensors. Throws kMalformed, and kInvalidInput if they do
// not match the configuration.
TrainedModel make_model(Config config, ByteView safetensors, BoundsMap released_bounds);
// Reads config.yaml, model.safetensors and, for released bounds, trace.jsonl. Throws kIoError,
// kMalformed, and kInvalidInput, naming what is missing or inconsistent.
TrainedModel load_model(const std::filesystem::path& run);
// The outputs for records read according to the run's configuration: [rows][outputs]. Columns of a
// CSV file may be in another order than in the training file. Throws kInvalidInput for records with
// other features.
std::vector<float> predict(const TrainedModel& model, data::Dataset data, int threads = 1);

}  // namespace discreet::training
