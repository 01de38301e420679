#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "discreet/config/config.h"
#include "discreet/layout/layer_pass.h"
#include "discreet/layout/layout.h"
#include "discreet/random/key.h"

namespace discreet::training {

// A chain of dense layers with sizes[0] inputs and sizes.back() outputs, and an activation after
// every layer except the last. With two sizes it is the linear or softmax model. The loss of a
// record is the cross-entropy of the softmax of the outputs or, for one output without classes,
// half the squared error.
struct NetworkShape {
  std::vector<std::size_t> sizes;  // at least 2, each >= 1
  Activation activation = Activation::kRelu;
  bool classifies = true;  // false: sizes.back() must be 1
  WordsMap groups = {};    // layers by group, as model.groups
};

// Sets the group of the tensors whose layer, the name up to its last dot, is listed in `groups`.
// Throws kInvalidDpConfig for a layer without tensors and for a layer in two groups.
void assign_groups(std::vector<Tensor>& tensors, const WordsMap& groups);

// Tensors layer0.weight [out][in], layer0.bias [out], layer1.weight and so on, with their groups.
ModelLayout layout_of(const NetworkShape& shape);

struct Losses {
  std::vector<float> losses;  // one per record; confidential
  std::uint64_t correct = 0;  // records whose largest output is their label
};

// The result of a microbatch: the losses, and the passes of the layers, which borrow from it.
struct BackwardResult : Losses {
  BackwardPass<float> pass;
  std::vector<std::vector<float>> activations;       // inputs of each layer [B][size]
  std::vector<std::vector<float>> output_gradients;  // of each layer [B][size]
};

class Network {
 public:
  // Weights are uniform in ±sqrt(6 / inputs) (ReLU) or ±sqrt(6 / (inputs + outputs)) (tanh), biases
  // 0, drawn from `key` (public randomness). A model of one layer starts at 0: its loss is convex,
  // and random weights would only add noise. Throws kInvalidDpConfig for an invalid shape.
  Network(NetworkShape shape, const random::Key& key);

  const NetworkShape& shape() const noexcept { return shape_; }
  const ModelLayout& layout() const noexcept { return layout_; }
  std::span<float> tensor(std::size_t i) { return parameters_.at(i); }
  std::span<const float> tensor(std::size_t i) const { return parameters_.at(i); }

  // The outputs for records x [records][inputs], as [records][outputs].
  std::vector<float> predict(std::span<const float> x, std::size_t records, int threads = 1) const;

  // As backward, but only the losses.
  Losses losses(std::span<const float> x, std::span<const std::uint32_t> labels,
                std::span<const float> targets, int threads = 1) const;

  // Losses and passes of a microbatch. Output gradients are those of each record's own loss,
  // without averaging. labels: one per record (classifies); targets: one per record (otherwise).
  // Throws kInvalidInput for sizes that do not fit or a label that is not a class. The bits do not
  // depend on threads.
  //   used: the result of an earlier microbatch, whose memory is reused
  BackwardResult backward(std::vector<float> x, std::span<const std::uint32_t> labels,
                          std::span<const float> targets, int threads = 1,
                          BackwardResult used = {}) const;

 private:
  // The number of records; throws as backward.
  std::size_t check(std::size_t numbers, std::span<const std::uint32_t> labels,
                    std::span<const float> targets) const;
  // Replaces the outputs by the gradients of the losses.
  void measure(std::span<float> outputs, std::span<const std::uint32_t> labels,
               std::span<const float> targets, int threads, Losses& out) const;
  // Computes the values after every layer from values[0], the records.
  void forward(std::vector<std::vector<float>>& values, std::size_t records, int threads) const;
  NetworkShape shape_;
  ModelLayout layout_;
  std::vector<std::vector<float>> parameters_;
};

}  // namespace discreet::training
