#include "discreet/training/model.h"

#include <fmt/core.h>

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
  const auto refuse = [](const char* sentence) {
    throw Error(ErrorCode::kInvalidDpConfig, "model", sentence);
  };
  const bool mlp = model.kind == ModelKind::kMlp;
  if (model.kind == ModelKind::kSoftmax && classes == 0)
    refuse("model.kind is softmax, but the label is a number; take linear or mlp");
  if (model.kind == ModelKind::kLinear && classes != 0)
    refuse("model.kind is linear, but the label is one of several classes; take softmax or mlp");
  if (mlp && model.hidden.empty())
    refuse("model.kind is mlp without model.hidden; give the sizes of its layers, as [64]");
  if (!mlp && !model.hidden.empty())
    refuse("model.hidden is given, but only an mlp has hidden layers; set model.kind: mlp");
  NetworkShape shape{{inputs}, model.activation, classes != 0};
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

TrainedModel load_model(const std::filesystem::path& run) {
  Config config = run::read_config(run);
  const Bytes file = read_file(run / "model.safetensors", std::size_t{1} << 36);
  const std::vector<NamedTensor> tensors = decode_safetensors(file);
  const auto refuse = [&] {
    throw Error(
        ErrorCode::kInvalidInput, "model",
        fmt::format("{} is not a model of its config.yaml", (run / "model.safetensors").string()));
  };
  if (tensors.size() != 2 * config.model.hidden.size() + 2) refuse();
  for (const NamedTensor& tensor : tensors)
    if (tensor.shape.empty()) refuse();
  if (tensors[0].shape.size() != 2) refuse();
  const std::size_t outputs = tensors.back().shape[0];
  const bool classifies = !config.data.classes.empty() || config.data.class_count ||
                          config.data.format == DataFormat::kDigits;
  Network network(shape_of(config.model, tensors[0].shape[1], classifies ? outputs : 0),
                  public_key(config.privacy));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name != network.layout().tensors()[i].name ||
        tensors[i].shape != network.layout().tensors()[i].shape)
      refuse();
    std::ranges::copy(tensors[i].values, network.tensor(i).begin());
  }
  BoundsMap released;
  if (!config.data.private_bounds.empty()) {
    const std::vector<run::TraceLine> lines = run::trace_lines(run / "trace.jsonl");
    if (lines.empty()) refuse();
    const auto header = read_json(lines[0].text);
    released = header.at("released_bounds").get<BoundsMap>();
  }
  std::vector<std::string> features;
  if (const auto metadata = safetensors_metadata(file); metadata.contains("features"))
    features = read_json(metadata.at("features")).get<std::vector<std::string>>();
  return {std::move(config), std::move(released), std::move(features), std::move(network)};
}

namespace {

// The columns of records in the order of `names`.
void reorder(data::Dataset& data, const std::vector<std::string>& names) {
  if (names.empty() || names == data.feature_names) return;
  std::vector<std::size_t> from;
  for (const std::string& name : names) {
    const auto at = std::ranges::find(data.feature_names, name);
    if (at == data.feature_names.end())
      throw Error(
          ErrorCode::kInvalidInput, "predict",
          fmt::format("the records have no feature {}, which the model was trained on", name));
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
    throw Error(ErrorCode::kInvalidInput, "predict",
                fmt::format("records have {} features, the model takes {}", data.features,
                            model.network.shape().sizes[0]));
  return model.network.predict(data.x, data.rows, threads);
}

}  // namespace discreet::training
