#include <algorithm>

#include "discreet/base/error.h"
#include "discreet/mechanism/route/route_impl.h"

namespace discreet::mechanism {
namespace {

// One per class: 1 where an index is permitted; empty: everywhere.
using AxisMasks = std::vector<std::vector<std::uint8_t>>;

template <class Real>
class Masker {
 public:
  Masker(const Router::Tables& tables, std::span<const std::uint32_t> classes,
         MaskedPass<Real>& out)
      : tables_(tables), classes_(classes), out_(out) {}

  void operator()(DensePass<Real> p) {
    const auto& shape = tables_.layout.tensors()[p.weight].shape;
    const std::size_t outputs = shape[0], inputs = shape[1];
    const auto g = p.output_gradients;
    p.activations = zeroed(p.activations, {p.positions, inputs, 1}, masks(p.weight, 1));
    p.output_gradients = zeroed(g, {p.positions, outputs, 1}, masks(p.weight, 0));
    part_from(p.bias, p.weight, g, {p.positions, outputs, 1});
    out_.pass.layers.push_back(p);
  }

  void operator()(ConvolutionPass<Real> p) {
    const ConvolutionShape shape = convolution_shape(tables_.layout, p);
    const std::size_t outputs = shape.outputs * p.groups, positions = shape.positions();
    const auto g = p.output_gradients;
    if (p.groups > 1 && any(masks(p.weight, 1))) no_axis(p.weight);
    for (std::size_t axis = 2; axis < tables_.layout.tensors()[p.weight].shape.size(); ++axis)
      if (any(masks(p.weight, axis))) no_axis(p.weight);
    p.inputs = zeroed(p.inputs, {1, shape.channels, p.height * p.width}, masks(p.weight, 1));
    p.output_gradients = zeroed(g, {1, outputs, positions}, masks(p.weight, 0));
    part_from(p.bias, p.weight, g, {1, outputs, positions});
    out_.pass.layers.push_back(p);
  }

  void operator()(EmbeddingPass<Real> p) {
    const std::size_t d = tables_.layout.tensors()[p.weight].shape[1];
    p.output_gradients = zeroed(p.output_gradients, {p.positions, d, 1}, masks(p.weight, 1));
    if (const AxisMasks rows = masks(p.weight, 0); any(rows)) {
      std::vector<Real>& copy = copied(p.output_gradients);
      for (std::size_t r = 0; r < p.tokens.size(); ++r)
        if (const auto* mask = of_record(rows, r / p.positions))
          if ((*mask)[static_cast<std::size_t>(p.tokens[r])] == 0)
            std::fill_n(copy.begin() + static_cast<std::ptrdiff_t>(r * d), d, Real{0});
      p.output_gradients = copy;
    }
    out_.pass.layers.push_back(p);
  }

  void operator()(NormalisationPass<Real> p) {
    const std::size_t d = tables_.layout.elements(p.scale ? *p.scale : *p.shift);
    const Shape shape = p.channels_first ? Shape{1, d, p.positions} : Shape{p.positions, d, 1};
    const auto g = p.output_gradients;
    p.output_gradients = zeroed(g, shape, masks(p.scale ? *p.scale : *p.shift, 0));
    if (p.scale) part_from(p.shift, *p.scale, g, shape);
    out_.pass.layers.push_back(p);
  }

 private:
  // The shape of one record's array, with the masked index in the middle.
  struct Shape {
    std::size_t outer, masked, inner;
  };

  AxisMasks masks(std::size_t tensor, std::size_t axis) const {
    AxisMasks out(tables_.classes);
    for (std::size_t c = 0; c < tables_.classes; ++c) out[c] = tables_.axis_mask(c, tensor, axis);
    return out;
  }
  static bool any(const AxisMasks& masks) {
    return std::ranges::any_of(masks, [](const auto& mask) { return !mask.empty(); });
  }
  const std::vector<std::uint8_t>* of_record(const AxisMasks& masks, std::size_t record) const {
    const std::uint32_t c = classes_[record];
    return c == kNoRoute || masks[c].empty() ? nullptr : &masks[c];
  }
  std::vector<Real>& copied(std::span<const Real> values) {
    return out_.owned.emplace_back(values.begin(), values.end());
  }

  std::span<const Real> zeroed(std::span<const Real> values, Shape shape, const AxisMasks& masks) {
    if (!any(masks)) return values;
    std::vector<Real>& copy = copied(values);
    Real* at = copy.data();
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      const auto* mask = of_record(masks, i);
      if (mask == nullptr) {
        at += shape.outer * shape.masked * shape.inner;
        continue;
      }
      for (std::size_t o = 0; o < shape.outer; ++o)
        for (std::size_t k = 0; k < shape.masked; ++k, at += shape.inner)
          if ((*mask)[k] == 0) std::fill_n(at, shape.inner, Real{0});
    }
    return copy;
  }

  // A bias or shift sees the same output gradients as its weight. If its masks are others, it gets
  // a pass of its own: a shift by itself has the same gradient, sum_t g_t.
  void part_from(std::optional<std::size_t>& bias, std::size_t weight, std::span<const Real> given,
                 Shape shape) {
    if (!bias || !tables_.layout.tensors()[*bias].is_private()) return;
    const AxisMasks own = masks(*bias, 0), others = masks(weight, 0);
    bool same = true;
    for (std::size_t c = 0; c < tables_.classes; ++c)
      if (tables_.at[c][*bias] != nullptr && own[c] != others[c]) same = false;
    if (same) return;
    NormalisationPass<Real> alone;
    alone.output_gradients = zeroed(given, shape, own);
    alone.channels_first = shape.inner > 1;
    alone.positions = shape.outer * shape.inner;
    alone.shift = bias;
    out_.pass.layers.push_back(alone);
    bias.reset();
  }

  [[noreturn]] void no_axis(std::size_t tensor) const {
    invalid_config("Router",
                   "the mask of tensor {} uses an axis that its backward pass does not have; use "
                   "per-sample gradients",
                   tables_.layout.tensors()[tensor].name);
  }

  const Router::Tables& tables_;
  std::span<const std::uint32_t> classes_;
  MaskedPass<Real>& out_;
};

}  // namespace

template <class Real>
MaskedPass<Real> masked(const Router::Tables& tables, const BackwardPass<Real>& pass,
                        std::span<const std::uint32_t> classes) {
  MaskedPass<Real> out;
  out.pass.records = pass.records;
  Masker<Real> masker(tables, classes, out);
  for (const LayerPass<Real>& layer : pass.layers) std::visit(masker, layer);
  return out;
}

template MaskedPass<float> masked(const Router::Tables&, const BackwardPass<float>&,
                                  std::span<const std::uint32_t>);
template MaskedPass<double> masked(const Router::Tables&, const BackwardPass<double>&,
                                   std::span<const std::uint32_t>);

}  // namespace discreet::mechanism
