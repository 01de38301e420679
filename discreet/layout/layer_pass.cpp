#include "discreet/layout/layer_pass.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "discreet/base/error.h"

namespace discreet {
namespace {

constexpr std::size_t kNoPass = static_cast<std::size_t>(-1);

class Check {
 public:
  Check(const ModelLayout& layout, std::size_t records, std::string_view op)
      : layout_(layout), records_(records), operator_(op), pass_of_(layout.size(), kNoPass) {}

  template <class Real>
  void layer(std::size_t pass, const DensePass<Real>& p) {
    const auto shape = claim(pass, p.weight, "a dense weight", 2);
    if (p.bias) vector(pass, *p.bias, shape[0], "bias");
    at_least_one_position(p.weight, p.positions);
    size(p.weight, "activations", p.activations.size(), {p.positions, shape[1]});
    size(p.weight, "output gradients", p.output_gradients.size(), {p.positions, shape[0]});
  }

  template <class Real>
  void layer(std::size_t pass, const ConvolutionPass<Real>& p) {
    claim(pass, p.weight, "a convolution's weight", 0);
    const ConvolutionShape shape = convolution_shape(layout_, p);
    if (p.bias) vector(pass, *p.bias, shape.outputs * p.groups, "bias");
    size(p.weight, "inputs", p.inputs.size(), {shape.channels, p.groups, p.height, p.width});
    size(p.weight, "output gradients", p.output_gradients.size(),
         {shape.outputs, p.groups, shape.out_height, shape.out_width});
  }

  template <class Real>
  void layer(std::size_t pass, const EmbeddingPass<Real>& p) {
    const auto shape = claim(pass, p.weight, "an embedding", 2);
    at_least_one_position(p.weight, p.positions);
    size(p.weight, "tokens", p.tokens.size(), {p.positions});
    size(p.weight, "output gradients", p.output_gradients.size(), {p.positions, shape[1]});
    for (const std::int64_t token : p.tokens)
      if (token < 0 || static_cast<std::uint64_t>(token) >= shape[0])
        invalid_input(operator_, "tensor {} has {} rows; token {} does not exist", name(p.weight),
                      shape[0], token);
  }

  template <class Real>
  void layer(std::size_t pass, const NormalisationPass<Real>& p) {
    if (!p.scale && !p.shift)
      invalid_input(operator_, "pass {} has neither scale nor shift; expected at least one", pass);
    const std::size_t first = p.scale ? *p.scale : *p.shift;
    const std::size_t length = claim(pass, first, "a scale or shift", 1)[0];
    if (p.scale && p.shift) vector(pass, *p.shift, length, "shift");
    at_least_one_position(first, p.positions);
    if (p.scale) size(first, "normalised inputs", p.normalised.size(), {p.positions, length});
    size(first, "output gradients", p.output_gradients.size(), {p.positions, length});
  }

  void nothing_missing() const {
    for (std::size_t i = 0; i < layout_.size(); ++i)
      if (layout_.tensors()[i].is_private() && pass_of_[i] == kNoPass)
        invalid_input(operator_,
                      "tensor {} is private, but has no pass; add the pass of its layer, or mark "
                      "it public or not trainable",
                      name(i));
  }

 private:
  const std::string& name(std::size_t i) const { return layout_.tensors()[i].name; }

  // The shape of tensor i, which is this pass's alone; dimensions 0: any number.
  std::span<const std::uint64_t> claim(std::size_t pass, std::size_t i, const char* what,
                                       std::size_t dimensions) {
    if (i >= layout_.size())
      invalid_input(operator_, "pass {} names tensor {}; the layout has only {}", pass, i,
                    layout_.size());
    if (pass_of_[i] != kNoPass)
      invalid_input(operator_,
                    "passes {} and {} both contain tensor {}; clip tied weights by explicit "
                    "per-sample gradients",
                    pass_of_[i], pass, name(i));
    pass_of_[i] = pass;
    const std::vector<std::uint64_t>& shape = layout_.tensors()[i].shape;
    if (dimensions != 0 && shape.size() != dimensions)
      invalid_input(operator_, "tensor {} has {} dimensions; {} must have {}", name(i),
                    shape.size(), what, dimensions);
    return shape;
  }

  void vector(std::size_t pass, std::size_t i, std::uint64_t length, const char* what) {
    const auto shape = claim(pass, i, what, 1);
    if (shape[0] != length)
      invalid_input(operator_, "tensor {} has {} elements; the {} of its layer must have {}",
                    name(i), shape[0], what, length);
  }

  void at_least_one_position(std::size_t i, std::size_t positions) const {
    if (positions == 0)
      invalid_input(operator_, "the pass of tensor {} has 0 positions; expected at least 1",
                    name(i));
  }

  void size(std::size_t i, const char* what, std::size_t given,
            std::initializer_list<std::uint64_t> factors) const {
    std::uint64_t wanted = records_;
    bool beyond = false;
    std::string shape = std::to_string(records_);
    for (const std::uint64_t factor : factors) {
      beyond |= __builtin_mul_overflow(wanted, factor, &wanted);
      shape += fmt::format(" x {}", factor);
    }
    if (beyond || wanted != given)
      invalid_gradient(operator_, "tensor {}: found {} values of {}; expected {}", name(i), given,
                       what, shape);
  }

  const ModelLayout& layout_;
  const std::size_t records_;
  const std::string_view operator_;
  std::vector<std::size_t> pass_of_;
};

}  // namespace

template <class Real>
ConvolutionShape convolution_shape(const ModelLayout& layout, const ConvolutionPass<Real>& pass) {
  const Tensor& tensor = layout.tensors()[pass.weight];
  const std::vector<std::uint64_t>& shape = tensor.shape;
  if (shape.size() != 3 && shape.size() != 4)
    invalid_input("convolution_shape",
                  "tensor {}: found {} dimensions; the weight of a convolution must have 3 or 4",
                  tensor.name, shape.size());
  if (pass.groups == 0 || shape[0] % pass.groups != 0)
    invalid_input("convolution_shape", "tensor {}: {} groups do not divide {} outputs", tensor.name,
                  pass.groups, shape[0]);
  ConvolutionShape out{};
  out.channels = shape[1];
  out.outputs = shape[0] / pass.groups;
  out.kernel_height = shape.size() == 4 ? shape[2] : 1;
  out.kernel_width = shape.back();
  const auto length = [&](std::size_t axis, std::size_t input, std::size_t kernel) {
    constexpr std::size_t kMost = std::size_t{1} << 31;  // no product below wraps
    if (pass.stride[axis] == 0 || pass.dilation[axis] == 0 || kernel == 0 ||
        std::max({input, kernel, pass.stride[axis], pass.padding[axis], pass.dilation[axis]}) >=
            kMost)
      invalid_input(
          "convolution_shape",
          "tensor {}: kernel, stride and dilation must be at least 1, and all lengths below 2^31",
          tensor.name);
    const std::size_t padded = input + 2 * pass.padding[axis];
    const std::size_t reach = pass.dilation[axis] * (kernel - 1) + 1;
    if (padded < reach)
      invalid_input("convolution_shape",
                    "tensor {}: a kernel of extent {} does not fit an input of length {}",
                    tensor.name, reach, padded);
    return (padded - reach) / pass.stride[axis] + 1;
  };
  out.out_height = length(0, pass.height, out.kernel_height);
  out.out_width = length(1, pass.width, out.kernel_width);
  return out;
}

template <class Real>
void check_pass(const ModelLayout& layout, const BackwardPass<Real>& pass,
                std::string_view operator_name) {
  Check check(layout, pass.records, operator_name);
  for (std::size_t i = 0; i < pass.layers.size(); ++i)
    std::visit([&](const auto& layer) { check.layer(i, layer); }, pass.layers[i]);
  check.nothing_missing();
}

template ConvolutionShape convolution_shape(const ModelLayout&, const ConvolutionPass<float>&);
template ConvolutionShape convolution_shape(const ModelLayout&, const ConvolutionPass<double>&);
template void check_pass(const ModelLayout&, const BackwardPass<float>&, std::string_view);
template void check_pass(const ModelLayout&, const BackwardPass<double>&, std::string_view);

}  // namespace discreet
