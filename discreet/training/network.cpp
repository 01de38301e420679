#include "discreet/training/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "discreet/base/error.h"
#include "discreet/base/text/utf8.h"
#include "discreet/data/matrix.h"
#include "discreet/numerics/elementary.h"
#include "discreet/numerics/parallel.h"
#include "discreet/random/generator.h"

namespace discreet::training {
namespace {

NetworkShape checked(NetworkShape shape) {
  if (shape.sizes.size() < 2) invalid_config("model", "a model needs inputs and outputs");
  for (const std::size_t size : shape.sizes)
    if (size == 0) invalid_config("model", "a layer of the model has size 0");
  if (!shape.classifies && shape.sizes.back() != 1)
    invalid_config("model", "a model that predicts a number must have 1 output, found {}",
                   shape.sizes.back());
  if (shape.classifies && shape.sizes.back() < 2)
    invalid_config("model", "a classifier needs at least 2 classes");
  return shape;
}

// value = activation(value)
void activate(std::span<float> values, Activation activation) {
  if (activation == Activation::kRelu) {
    for (float& z : values) z = z > 0 ? z : 0;
    return;
  }
  for (float& z : values) {
    // tanh z = 1 - 2 / (e^2z + 1), with our own exp: the same bits on every machine.
    const double e = numerics::exp(2 * std::clamp(static_cast<double>(z), -20.0, 20.0));
    z = static_cast<float>((e - 1) / (e + 1));
  }
}

// gradient *= the derivative of the activation, from its value.
void multiply_by_slope(std::span<float> gradient, std::span<const float> values,
                       Activation activation) {
  if (activation == Activation::kRelu) {
    for (std::size_t k = 0; k < gradient.size(); ++k) gradient[k] *= values[k] > 0 ? 1.0f : 0.0f;
  } else {
    for (std::size_t k = 0; k < gradient.size(); ++k) gradient[k] *= 1 - values[k] * values[k];
  }
}

// Loss of one record; `outputs` become the gradient of the loss.
float softmax_loss(std::span<float> outputs, std::uint32_t label, bool& correct) {
  const std::size_t best =
      static_cast<std::size_t>(std::ranges::max_element(outputs) - outputs.begin());
  correct = best == label;
  const double largest = outputs[best];
  double total = 0;
  for (const float z : outputs) total += numerics::exp(static_cast<double>(z) - largest);
  const double log_total = numerics::log(total) + largest;
  const double loss = log_total - outputs[label];
  for (std::size_t k = 0; k < outputs.size(); ++k)
    outputs[k] = static_cast<float>(numerics::exp(static_cast<double>(outputs[k]) - log_total) -
                                    (k == label ? 1 : 0));
  return static_cast<float>(loss);
}

}  // namespace

void assign_groups(std::vector<Tensor>& tensors, const WordsMap& groups) {
  std::map<std::string, std::vector<Tensor*>> layers;
  for (Tensor& tensor : tensors)
    layers[tensor.name.substr(0, tensor.name.rfind('.'))].push_back(&tensor);
  std::map<std::string, std::string> group_of;
  for (const auto& [group, names] : groups)
    for (const std::string& name : names) {
      const auto layer = layers.find(name);
      if (layer == layers.end()) {
        std::vector<std::string> known;
        for (const auto& [own, unused] : layers) known.push_back(own);
        invalid_config("model", "model.groups of {} has {}, but the layers are {}", group,
                       excerpt(name), fmt::join(known, ", "));
      }
      const auto [at, fresh] = group_of.emplace(name, group);
      if (!fresh)
        invalid_config("model", "model.groups has {} in {} and in {}; a layer is in one group",
                       name, at->second, group);
      for (Tensor* tensor : layer->second) tensor->group = group;
    }
}

ModelLayout layout_of(const NetworkShape& shape) {
  std::vector<Tensor> tensors;
  for (std::size_t l = 0; l + 1 < shape.sizes.size(); ++l) {
    const std::string layer = fmt::format("layer{}", l);
    tensors.push_back({.name = layer + ".weight", .shape = {shape.sizes[l + 1], shape.sizes[l]}});
    tensors.push_back({.name = layer + ".bias", .shape = {shape.sizes[l + 1]}});
  }
  assign_groups(tensors, shape.groups);
  return ModelLayout(std::move(tensors));
}

Network::Network(NetworkShape shape, const random::Key& key)
    : shape_(checked(std::move(shape))), layout_(layout_of(shape_)) {
  const random::Generator generator(random::Algorithm::kPhilox4x32,
                                    key.derive(random::stream::kInitialisation));
  random::BlockSource source(generator);
  for (std::size_t i = 0; i < layout_.size(); ++i) {
    std::vector<float>& values = parameters_.emplace_back(layout_.elements(i));
    if (i % 2 == 1 || layout_.size() == 2) continue;  // biases, and models of one layer
    const double inputs = static_cast<double>(shape_.sizes[i / 2]);
    const double outputs = static_cast<double>(shape_.sizes[i / 2 + 1]);
    const double limit =
        std::sqrt(6 / (shape_.activation == Activation::kRelu ? inputs : inputs + outputs));
    std::vector<std::uint64_t> words(values.size());
    source.read(i, 0, words);
    for (std::size_t k = 0; k < values.size(); ++k)
      values[k] = static_cast<float>(limit * (static_cast<double>(words[k] >> 11) * 0x1p-52 - 1));
  }
}

void Network::forward(std::vector<std::vector<float>>& values, std::size_t records,
                      int threads) const {
  const std::size_t layers = shape_.sizes.size() - 1;
  values.resize(layers + 1);
  for (std::size_t l = 0; l < layers; ++l) {
    const std::size_t n = shape_.sizes[l + 1];
    std::vector<float>& z = values[l + 1];
    z.resize(records * n);
    const std::vector<float>& bias = parameters_[2 * l + 1];
    data::multiply_transposed(values[l], parameters_[2 * l], z, records, n, shape_.sizes[l],
                              threads, [&](std::size_t begin, std::size_t end) {
                                for (std::size_t i = begin; i < end; ++i)
                                  for (std::size_t k = 0; k < n; ++k) z[i * n + k] += bias[k];
                                if (l + 1 < layers)
                                  activate(std::span(z).subspan(begin * n, (end - begin) * n),
                                           shape_.activation);
                              });
  }
}

std::vector<float> Network::predict(std::span<const float> x, std::size_t records,
                                    int threads) const {
  if (x.size() != records * shape_.sizes[0])
    invalid_input("Network::predict", "found {} numbers for {} records of {} features", x.size(),
                  records, shape_.sizes[0]);
  std::vector<std::vector<float>> values = {{x.begin(), x.end()}};
  forward(values, records, threads);
  return std::move(values.back());
}

std::size_t Network::check(std::size_t numbers, std::span<const std::uint32_t> labels,
                           std::span<const float> targets) const {
  const std::size_t records = shape_.classifies ? labels.size() : targets.size();
  if (numbers != records * shape_.sizes[0])
    invalid_input("Network::backward", "found {} numbers for {} records of {} features", numbers,
                  records, shape_.sizes[0]);
  for (const std::uint32_t label : labels)
    if (label >= shape_.sizes.back())
      invalid_input("Network::backward", "label {} is not one of the {} classes", label,
                    shape_.sizes.back());
  return records;
}

void Network::measure(std::span<float> outputs, std::span<const std::uint32_t> labels,
                      std::span<const float> targets, int threads, Losses& out) const {
  const std::size_t n = shape_.sizes.back(), records = outputs.size() / n;
  out.losses.resize(records);
  std::vector<std::uint8_t> correct(records);
  numerics::parallel_items(records, threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const auto row = outputs.subspan(i * n, n);
      if (shape_.classifies) {
        bool hit = false;
        out.losses[i] = softmax_loss(row, labels[i], hit);
        correct[i] = hit ? 1 : 0;
      } else {
        row[0] -= targets[i];
        out.losses[i] = 0.5f * row[0] * row[0];
      }
    }
  });
  out.correct = 0;
  for (const std::uint8_t hit : correct) out.correct += hit;
}

Losses Network::losses(std::span<const float> x, std::span<const std::uint32_t> labels,
                       std::span<const float> targets, int threads) const {
  std::vector<float> outputs = predict(x, check(x.size(), labels, targets), threads);
  Losses out;
  measure(outputs, labels, targets, threads, out);
  return out;
}

BackwardResult Network::backward(std::vector<float> x, std::span<const std::uint32_t> labels,
                                 std::span<const float> targets, int threads,
                                 BackwardResult used) const {
  const std::size_t records = check(x.size(), labels, targets);
  const std::size_t layers = shape_.sizes.size() - 1;
  BackwardResult out = std::move(used);
  out.activations.resize(layers);
  out.output_gradients.resize(layers);
  out.activations[0] = std::move(x);
  out.activations.push_back(std::move(out.output_gradients.back()));
  forward(out.activations, records, threads);
  std::vector<float> gradient = std::move(out.activations.back());
  out.activations.pop_back();
  measure(gradient, labels, targets, threads, out);
  for (std::size_t l = layers; l-- > 0;) {
    out.output_gradients[l] = std::move(gradient);
    if (l == 0) break;
    const std::size_t n = shape_.sizes[l];
    gradient = std::move(out.output_gradients[l - 1]);
    gradient.resize(records * n);
    data::multiply(out.output_gradients[l], parameters_[2 * l], gradient, records, n,
                   shape_.sizes[l + 1], threads, [&](std::size_t begin, std::size_t end) {
                     const std::size_t first = begin * n, count = (end - begin) * n;
                     multiply_by_slope(std::span(gradient).subspan(first, count),
                                       std::span(out.activations[l]).subspan(first, count),
                                       shape_.activation);
                   });
  }
  out.pass.records = records;
  out.pass.layers.clear();
  for (std::size_t l = 0; l < layers; ++l)
    out.pass.layers.push_back(DensePass<float>{.activations = out.activations[l],
                                               .output_gradients = out.output_gradients[l],
                                               .positions = 1,
                                               .weight = 2 * l,
                                               .bias = 2 * l + 1});
  return out;
}

}  // namespace discreet::training
