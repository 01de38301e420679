#include "discreet/training/model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/data/features.h"
#include "discreet/run/run_files.h"
#include "discreet/run/trace.h"
#include "discreet/training/safetensors.h"

namespace discreet::training {

NetworkShape shape_of(const ModelConfig& model, std::size_t inputs, std::size_t classes) {
  const bool mlp = model.kind == ModelKind::kMlp;
  if (model.kind == ModelKind::kSoftmax && classes == 0)
    invalid_config("model", "model.kind is softmax, but the label is a number; use linear or mlp");
  if (model.kind == ModelKind::kLinear && classes != 0)
    invalid_config("model",
                   "model.kind is linear, but the label has several classes; use softmax or mlp");
  if (mlp && model.hidden.empty())
    invalid_config(
        "model",
        "model.kind is mlp without model.hidden; set the sizes of its layers, such as [64]");
  if (!mlp && !model.hidden.empty())
    invalid_config("model",
                   "model.hidden is set, but only an mlp has hidden layers; set model.kind: mlp");
  NetworkShape shape{{inputs}, model.activation, classes != 0, model.groups};
  shape.sizes.insert(shape.sizes.end(), model.hidden.begin(), model.hidden.end());
  shape.sizes.push_back(std::max<std::size_t>(classes, 1));
  return shape;
}

random::Key public_key(const DpConfig& privacy) {
  return random::Key::from_seed(privacy.seed).derive("public");
}

void map_features(const Config& config, data::Dataset& data, int threads) {
  if (config.model.features == FeatureMapKind::kNone) return;
  const data::FeatureMap map(config.model, data.features, data.height, data.width,
                             public_key(config.privacy));
  std::vector<float> out(data.rows * map.size());
  map.apply(data.x, data.rows, out, threads);
  data.x = std::move(out);
  data.features = map.size();
  data.height = data.width = 0;
  data.feature_names.clear();
}

TrainedModel make_model(Config config, ByteView file, BoundsMap released) try {
  const std::vector<NamedTensor> tensors = decode_safetensors(file);
  const auto refuse = [] {
    invalid_input("model", "model.safetensors does not match its config.yaml");
  };
  if (tensors.size() != 2 * config.model.hidden.size() + 2) refuse();
  for (const NamedTensor& tensor : tensors)
    if (tensor.shape.empty()) refuse();
  if (tensors[0].shape.size() != 2) refuse();
  const std::size_t outputs = tensors.back().shape[0];
  const bool classifies = !config.data.classes.empty() || config.data.class_count ||
                          config.data.format == DataFormat::kDigits;
  NetworkShape shape = shape_of(config.model, tensors[0].shape[1], classifies ? outputs : 0);
  if (config.model.features == FeatureMapKind::kFourier &&
      config.model.fourier_count != shape.sizes[0])
    refuse();
  // Before the network exists: its size is what config.yaml says, and the file may be small.
  const ModelLayout layout = layout_of(shape);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].name != layout.tensors()[i].name ||
        tensors[i].shape != layout.tensors()[i].shape)
      refuse();
  Network network(std::move(shape), public_key(config.privacy));
  for (std::size_t i = 0; i < tensors.size(); ++i)
    std::ranges::copy(tensors[i].values, network.tensor(i).begin());
  std::vector<std::string> features;
  if (const auto metadata = safetensors_metadata(file); metadata.contains("features"))
    features = read_json(metadata.at("features")).get<std::vector<std::string>>();
  return {std::move(config), std::move(released), std::move(features), std::move(network)};
} catch (const nlohmann::json::exception& error) {
  malformed("model", "model.safetensors has unexpected content: {}", error.what());
}

TrainedModel load_model(const std::filesystem::path& run) try {
  Config config = run::read_config(run);
  const Bytes file = read_file(run / "model.safetensors", std::size_t{1} << 36);
  BoundsMap released;
  if (!config.data.private_bounds.empty()) {
    const std::vector<run::TraceLine> lines = run::trace_lines(run / "trace.jsonl");
    if (lines.empty())
      malformed("model",
                "{} is empty, but its first line must contain the bounds that the run released",
                (run / "trace.jsonl").string());
    released = read_json(lines[0].text).at("released_bounds").get<BoundsMap>();
  }
  return make_model(std::move(config), file, std::move(released));
} catch (const nlohmann::json::exception& error) {
  malformed("model", "a file of {} has unexpected content: {}", run.string(), error.what());
}

namespace {

// The columns of records in the order of `names`.
void reorder(data::Dataset& data, const std::vector<std::string>& names) {
  if (names.empty() || names == data.feature_names) return;
  std::vector<std::size_t> from;
  for (const std::string& name : names) {
    const auto at = std::ranges::find(data.feature_names, name);
    if (at == data.feature_names.end())
      invalid_input("predict",
                    "the records do not have the feature {}, on which the model was trained", name);
    from.push_back(static_cast<std::size_t>(at - data.feature_names.begin()));
  }
  std::vector<float> x;
  x.reserve(data.rows * from.size());
  for (std::size_t row = 0; row < data.rows; ++row)
    for (const std::size_t k : from) x.push_back(data.x[row * data.features + k]);
  data.x = std::move(x);
  data.features = from.size();
  data.feature_names = names;
}

}  // namespace

std::vector<float> predict(const TrainedModel& model, data::Dataset data, int threads) {
  reorder(data, model.features);
  map_features(model.config, data, threads);
  if (data.features != model.network.shape().sizes[0])
    invalid_input("predict", "records have {} features; the model expects {}", data.features,
                  model.network.shape().sizes[0]);
  return model.network.predict(data.x, data.rows, threads);
}

}  // namespace discreet::training
