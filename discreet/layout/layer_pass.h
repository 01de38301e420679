#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "discreet/layout/layout.h"

namespace discreet {

// The data of a layer after a backward pass: its inputs and the gradients of the loss with respect
// to its outputs, for every record of a microbatch, borrowed. They determine the per-sample
// gradients of the layer's tensors, which are never materialised.
//
// B records; T >= 1 positions (of a sequence or an image) that share the weights; row-major.
// Tensors are given by their index in the layout. Tensors that are not private are ignored.
//   Real: float or double.

// y_t = W x_t + b, hence dW = sum_t g_t x_t^T, db = sum_t g_t.
template <class Real>
struct DensePass {
  std::span<const Real> activations;       // x: [B][T][in]
  std::span<const Real> output_gradients;  // g: [B][T][out]
  std::size_t positions = 1;               // T
  std::size_t weight = 0;                  // [out][in]
  std::optional<std::size_t> bias = {};    // [out]
};

// A two-dimensional convolution; a one-dimensional one has height 1.
template <class Real>
struct ConvolutionPass {
  std::span<const Real> inputs;            // [B][Cin][H][W]
  std::span<const Real> output_gradients;  // [B][Cout][H'][W']
  std::size_t height = 1, width = 1;       // H, W of the input
  std::size_t weight = 0;                  // [Cout][Cin / groups][kh][kw], or without kh = 1
  std::optional<std::size_t> bias = {};    // [Cout]
  std::size_t groups = 1;                  // divides Cin and Cout
  std::array<std::size_t, 2> stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};  // of H and W
};

// y_t = W[token_t], hence row v of dW is the sum of g_t over the positions of token v.
template <class Real>
struct EmbeddingPass {
  std::span<const std::int64_t> tokens;    // [B][T], each in [0, vocabulary)
  std::span<const Real> output_gradients;  // [B][T][dimension]
  std::size_t positions = 1;               // T
  std::size_t weight = 0;                  // [vocabulary][dimension]
};

// y_t = scale * z_t + shift, elementwise, where z is the normalised input: LayerNorm and RMSNorm (T
// positions of d features), GroupNorm and InstanceNorm (d channels of T pixels, channels_first).
template <class Real>
struct NormalisationPass {
  std::span<const Real> normalised;        // z: [B][T][d], or [B][d][T] if channels_first
  std::span<const Real> output_gradients;  // g: same shape as z
  std::size_t positions = 1;               // T
  bool channels_first = false;
  std::optional<std::size_t> scale = {};  // [d]
  std::optional<std::size_t> shift = {};  // [d]
};

template <class Real>
using LayerPass = std::variant<DensePass<Real>, ConvolutionPass<Real>, EmbeddingPass<Real>,
                               NormalisationPass<Real>>;

// All layers of a microbatch.
template <class Real>
struct BackwardPass {
  std::size_t records = 0;  // B
  std::vector<LayerPass<Real>> layers;
};

// The shape of a convolution, derived from its pass and the layout.
struct ConvolutionShape {
  std::size_t channels, outputs;  // of one group: Cin / groups, Cout / groups
  std::size_t kernel_height, kernel_width;
  std::size_t out_height, out_width;
  std::size_t inputs() const { return channels * kernel_height * kernel_width; }  // per position
  std::size_t positions() const { return out_height * out_width; }                // T
};

// Throws kInvalidInput if the weight does not have such a shape or the output would be empty.
template <class Real>
ConvolutionShape convolution_shape(const ModelLayout& layout, const ConvolutionPass<Real>& pass);

// Throws, naming the tensor and the sizes, unless the passes match the layout: kInvalidGradient for
// a span of the wrong size; kInvalidInput for an invalid index, shape, token or number of
// positions, for a private tensor without a pass (its gradient would be lost silently), and for a
// tensor with two passes, because the norm of a sum does not follow from the norms of its terms.
// For a model with tied weights, clip explicit per-sample gradients.
//   operator_name: the checking operator, for the sentence.
template <class Real>
void check_pass(const ModelLayout& layout, const BackwardPass<Real>& pass,
                std::string_view operator_name);

}  // namespace discreet
