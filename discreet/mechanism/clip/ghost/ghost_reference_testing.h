#pragma once

#include <cmath>
#include <deque>
#include <random>
#include <vector>

#include "discreet/layout/layer_pass.h"
#include "discreet/mechanism/clip/clip.h"

// The reference for ghost and fused clipping: explicit per-sample gradients by the textbook
// definition of each layer, in long double, one coordinate at a time.
namespace discreet::mechanism::reference {

// One record's gradient: per tensor of the layout, its coordinates, and for each the sum of the
// absolute values of its terms.
struct Gradient {
  std::vector<std::vector<long double>> values, sizes;

  explicit Gradient(const ModelLayout& layout) : values(layout.size()), sizes(layout.size()) {
    for (std::size_t i = 0; i < layout.size(); ++i) {
      values[i].resize(layout.elements(i));
      sizes[i].resize(layout.elements(i));
    }
  }
  void add(std::size_t tensor, std::size_t at, long double term) {
    values[tensor][at] += term;
    sizes[tensor][at] += std::fabs(term);
  }
};

template <class Real>
void add(const ModelLayout& layout, const DensePass<Real>& p, std::size_t i, Gradient& out) {
  const std::size_t n = layout.tensors()[p.weight].shape[0],
                    m = layout.tensors()[p.weight].shape[1];
  for (std::size_t t = 0; t < p.positions; ++t)
    for (std::size_t o = 0; o < n; ++o) {
      const long double g = p.output_gradients[(i * p.positions + t) * n + o];
      for (std::size_t k = 0; k < m; ++k)
        out.add(p.weight, o * m + k, g * p.activations[(i * p.positions + t) * m + k]);
      if (p.bias) out.add(*p.bias, o, g);
    }
}

template <class Real>
void add(const ModelLayout& layout, const ConvolutionPass<Real>& p, std::size_t i, Gradient& out) {
  const std::vector<std::uint64_t>& shape = layout.tensors()[p.weight].shape;
  const auto n = static_cast<long>(shape[0]), m = static_cast<long>(shape[1]);
  const long kh = shape.size() == 4 ? static_cast<long>(shape[2]) : 1;
  const auto kw = static_cast<long>(shape.back());
  const auto height = static_cast<long>(p.height), width = static_cast<long>(p.width);
  const auto of = [](const std::array<std::size_t, 2>& pair, int axis) {
    return static_cast<long>(pair[static_cast<std::size_t>(axis)]);
  };
  const auto length = [&](long input, long kernel, int axis) {
    return (input + 2 * of(p.padding, axis) - of(p.dilation, axis) * (kernel - 1) - 1) /
               of(p.stride, axis) +
           1;
  };
  const long oh = length(height, kh, 0), ow = length(width, kw, 1);
  const auto groups = static_cast<long>(p.groups), record = static_cast<long>(i);
  for (long o = 0; o < n; ++o)
    for (long y = 0; y < oh; ++y)
      for (long x = 0; x < ow; ++x) {
        const long double g =
            p.output_gradients[static_cast<std::size_t>(((record * n + o) * oh + y) * ow + x)];
        if (p.bias) out.add(*p.bias, static_cast<std::size_t>(o), g);
        for (long c = 0; c < m; ++c)
          for (long a = 0; a < kh; ++a)
            for (long b = 0; b < kw; ++b) {
              const long h = y * of(p.stride, 0) + a * of(p.dilation, 0) - of(p.padding, 0);
              const long w = x * of(p.stride, 1) + b * of(p.dilation, 1) - of(p.padding, 1);
              if (h < 0 || h >= height || w < 0 || w >= width) continue;
              const long channel = o / (n / groups) * m + c;
              const auto at = static_cast<std::size_t>(
                  ((record * m * groups + channel) * height + h) * width + w);
              out.add(p.weight, static_cast<std::size_t>(((o * m + c) * kh + a) * kw + b),
                      g * p.inputs[at]);
            }
      }
}

template <class Real>
void add(const ModelLayout& layout, const EmbeddingPass<Real>& p, std::size_t i, Gradient& out) {
  const std::size_t d = layout.tensors()[p.weight].shape[1];
  for (std::size_t r = i * p.positions; r < (i + 1) * p.positions; ++r)
    for (std::size_t j = 0; j < d; ++j)
      out.add(p.weight, static_cast<std::size_t>(p.tokens[r]) * d + j,
              p.output_gradients[r * d + j]);
}

template <class Real>
void add(const ModelLayout& layout, const NormalisationPass<Real>& p, std::size_t i,
         Gradient& out) {
  const std::size_t d = layout.elements(p.scale ? *p.scale : *p.shift);
  for (std::size_t t = 0; t < p.positions; ++t)
    for (std::size_t j = 0; j < d; ++j) {
      const std::size_t at =
          i * p.positions * d + (p.channels_first ? j * p.positions + t : t * d + j);
      const long double g = p.output_gradients[at];
      if (p.scale) out.add(*p.scale, j, g * p.normalised[at]);
      if (p.shift) out.add(*p.shift, j, g);
    }
}

template <class Real>
Gradient gradient(const ModelLayout& layout, const BackwardPass<Real>& pass, std::size_t record) {
  Gradient out(layout);
  for (const auto& layer : pass.layers)
    std::visit([&](const auto& p) { add(layout, p, record, out); }, layer);
  return out;
}

// The norm of one part of it (values), or of its terms (sizes).
inline long double norm(const Partition& partition, std::size_t part,
                        const std::vector<std::vector<long double>>& tensors) {
  long double total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (partition.part_of[i] == part)
      for (const long double v : tensors[i]) total += v * v;
  return std::sqrt(total);
}

// Owns the arrays of a microbatch.
template <class Real>
class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) {}

  std::span<const Real> normal(std::size_t n, double factor = 1) {
    std::normal_distribution<double> draw;
    std::vector<Real>& out = arrays_.emplace_back(n);
    for (Real& v : out) v = static_cast<Real>(factor * draw(random_));
    return out;
  }
  std::span<const std::int64_t> tokens(std::size_t n, std::int64_t vocabulary) {
    std::vector<std::int64_t>& out = tokens_.emplace_back(n);
    for (auto& v : out)
      v = static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(vocabulary));
    return out;
  }
  std::size_t number(std::size_t low, std::size_t high) {
    return low + random_() % (high - low + 1);
  }
  // Write access to an array returned by normal().
  std::span<Real> open(std::span<const Real> array) {
    for (std::vector<Real>& mine : arrays_)
      if (mine.data() == array.data()) return mine;
    return {};
  }

 private:
  std::mt19937_64 random_;
  std::deque<std::vector<Real>> arrays_;
  std::deque<std::vector<std::int64_t>> tokens_;
};

template <class Real>
struct Model {
  ModelLayout layout{{}};
  BackwardPass<Real> pass;
};

// Every kind of layer once, with random shapes for each seed.
template <class Real>
Model<Real> every_layer(Maker<Real>& make, std::size_t records, double factor = 1) {
  const std::size_t in = make.number(1, 40), out = make.number(1, 40), t = make.number(2, 9);
  const std::size_t groups = make.number(1, 2), channels = make.number(1, 3);
  const std::size_t outputs = groups * make.number(1, 4), kh = make.number(1, 3),
                    kw = make.number(1, 3);
  const std::size_t vocabulary = make.number(1, 6), d = make.number(1, 20);
  Model<Real> m{ModelLayout({{"plain.weight", {out, in}},
                             {"plain.bias", {out}},
                             {"sequence.weight", {in, out}},
                             {"sequence.bias", {in}},
                             {"image.weight", {outputs, channels, kh, kw}},
                             {"image.bias", {outputs}},
                             {"line.weight", {outputs, channels, kw}},
                             {"tokens.weight", {vocabulary, d}},
                             {"norm.scale", {d}},
                             {"norm.shift", {d}},
                             {"group.scale", {d}}}),
                {records, {}}};
  ConvolutionPass<Real> image;
  image.height = make.number(3, 7);
  image.width = make.number(3, 7);
  image.weight = 4;
  image.bias = 5;
  image.groups = groups;
  image.stride = {make.number(1, 2), make.number(1, 2)};
  image.padding = {make.number(0, 2), make.number(0, 2)};
  image.dilation = {make.number(1, 1 + (kh < 3)), make.number(1, 1 + (kw < 3))};
  const ConvolutionShape shape = convolution_shape(m.layout, image);
  image.inputs = make.normal(records * groups * channels * image.height * image.width);
  image.output_gradients = make.normal(records * outputs * shape.positions(), factor);
  ConvolutionPass<Real> line;
  line.width = make.number(3, 20);
  line.weight = 6;
  line.groups = groups;
  line.padding = {0, 1};
  const ConvolutionShape line_shape = convolution_shape(m.layout, line);
  line.inputs = make.normal(records * groups * channels * line.width);
  line.output_gradients = make.normal(records * outputs * line_shape.positions(), factor);
  m.pass.layers = {
      DensePass<Real>{make.normal(records * in), make.normal(records * out, factor), 1, 0, 1},
      DensePass<Real>{make.normal(records * t * out), make.normal(records * t * in, factor), t, 2,
                      3},
      image,
      line,
      EmbeddingPass<Real>{make.tokens(records * t, static_cast<std::int64_t>(vocabulary)),
                          make.normal(records * t * d, factor), t, 7},
      NormalisationPass<Real>{make.normal(records * t * d), make.normal(records * t * d, factor), t,
                              false, 8, 9},
      NormalisationPass<Real>{make.normal(records * t * d), make.normal(records * t * d, factor), t,
                              true, 10}};
  return m;
}

inline ClipPlan plan_of(const ModelLayout& layout, Cut cut, double clip) {
  ClipPlan plan{partition(layout, cut), {}, {}};
  plan.clip.assign(plan.partition.parts(), clip);
  return plan;
}

}  // namespace discreet::mechanism::reference
