#include "discreet/mechanism/ghost.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <limits>

#include "discreet/base/error.h"
#include "discreet/mechanism/fused.h"
#include "discreet/mechanism/ghost_reference_testing.h"

namespace discreet::mechanism {
namespace {

using reference::Maker;

template <class Real>
struct Model {
  ModelLayout layout{{}};
  BackwardPass<Real> pass;
};

// Every kind of layer once, shapes drawn anew for each seed.
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

ClipPlan plan_of(const ModelLayout& layout, Cut cut, double clip) {
  ClipPlan plan{partition(layout, cut), {}, {}};
  plan.clip.assign(plan.partition.parts(), clip);
  return plan;
}

// Norms never below the exact ones and not much above; the sum within the stated bound.
template <class Real>
void expect_agrees(const Model<Real>& m, const ClipPlan& plan, const ClipOptions& options,
                   const RecordNorms& norms, const GradientSum& sum) {
  const std::size_t parts = plan.partition.parts();
  std::vector<std::vector<long double>> exact(m.layout.size());
  for (std::size_t k = 0; k < m.layout.size(); ++k) exact[k].resize(m.layout.elements(k));
  for (std::size_t i = 0; i < m.pass.records; ++i) {
    const reference::Gradient gradient = reference::gradient(m.layout, m.pass, i);
    for (std::size_t g = 0; g < parts; ++g) {
      const long double norm = reference::norm(plan.partition, g, gradient.values);
      // Products of norms may exceed the elementwise terms, at most by a factor of positions.
      const long double terms = 64 * reference::norm(plan.partition, g, gradient.sizes);
      EXPECT_GE(norms.norm(i, g), norm) << "record " << i << " part " << g;
      EXPECT_LE(norms.norm(i, g),
                std::max(norm * (1 + 1e-12L) + 1e-12L * terms, terms / 4096) + 1e-290L);
      EXPECT_LE(norms.scale(i, g) * norm, plan.clip[g]);
      EXPECT_EQ(norms.scale(i, g), clip_scale(norms.norm(i, g), plan.clip[g]));
    }
    for (std::size_t k = 0; k < m.layout.size(); ++k)
      for (std::size_t j = 0; j < exact[k].size(); ++j)
        exact[k][j] += norms.scale(i, plan.partition.part_of[k]) * gradient.values[k][j];
  }
  const double eta = sensitivity_factor(m.pass.records, 64, options, Slots::kShifted) - 1;
  for (std::size_t g = 0; g < parts; ++g) {
    long double error = 0;
    for (std::size_t k = 0; k < m.layout.size(); ++k)
      for (std::size_t j = 0; plan.partition.part_of[k] == g && j < exact[k].size(); ++j) {
        const long double d = exact[k][j] - sum.tensor(k)[j];
        error += d * d;
      }
    EXPECT_LE(std::sqrt(error), plan.clip[g] * eta / 2) << "part " << g;
  }
}

template <class Real>
class GhostClip : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(GhostClip, Reals);

TYPED_TEST(GhostClip, AgreesWithExplicitGradientsOfEveryKindOfLayer) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Maker<TypeParam> make(seed);
    const Model<TypeParam> m = every_layer(make, make.number(1, 5));
    for (const Cut cut : {Cut::kFlat, Cut::kLayer, Cut::kTensor}) {
      const ClipPlan plan = plan_of(m.layout, cut, 2.0);
      ClipOptions options;
      options.binary32_records = make.number(0, 3);
      GradientSum sum(m.layout);
      const RecordNorms norms = ghost_clip(m.layout, m.pass, plan, options, sum);
      expect_agrees(m, plan, options, norms, sum);
    }
  }
}

TYPED_TEST(GhostClip, IsTheSameInEveryBitForAnyNumberOfThreads) {
  Maker<TypeParam> make(7);
  const std::size_t n = 300, b = 70;
  const ModelLayout layout({{"w", {n, n}}, {"b", {n}}, {"s.w", {n, 20}}, {"i.w", {40, 3, 3, 3}}});
  BackwardPass<TypeParam> pass{b, {}};
  pass.layers = {DensePass<TypeParam>{make.normal(b * n), make.normal(b * n), 1, 0, 1},
                 DensePass<TypeParam>{make.normal(b * 5 * 20), make.normal(b * 5 * n), 5, 2}};
  ConvolutionPass<TypeParam> image;
  image.height = image.width = 9;
  image.weight = 3;
  image.inputs = make.normal(b * 3 * 81);
  image.output_gradients = make.normal(b * 40 * 49);
  pass.layers.push_back(image);
  for (const Cut cut : {Cut::kFlat, Cut::kLayer}) {
    const ClipPlan plan = plan_of(layout, cut, 1.0);
    GradientSum first(layout);
    const RecordNorms norms = ghost_clip(layout, pass, plan, {}, first);
    for (const int threads : {2, 4}) {
      ClipOptions options;
      options.threads = threads;
      GradientSum sum(layout), fused(layout);
      const RecordNorms again = ghost_clip(layout, pass, plan, options, sum);
      EXPECT_EQ(again.norms, norms.norms);
      EXPECT_EQ(again.scales, norms.scales);
      EXPECT_TRUE(std::ranges::equal(sum.values(), first.values()));
      if (cut == Cut::kFlat) continue;
      EXPECT_EQ(fused_clip(layout, pass, plan, options, fused).scales, norms.scales);
      EXPECT_TRUE(std::ranges::equal(fused.values(), first.values()));
    }
  }
}

}  // namespace
}  // namespace discreet::mechanism
