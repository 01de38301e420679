#include "discreet/mechanism/clip/ghost/ghost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/ghost/fused.h"
#include "discreet/mechanism/clip/ghost/ghost_reference_testing.h"
#include "discreet/numerics/targets_testing.h"

namespace discreet::mechanism {
namespace {

using reference::every_layer;
using reference::Maker;
using reference::Model;
using reference::plan_of;

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

TYPED_TEST(GhostClip, NeverUnderestimatesWhatIsLeftWhenPositionsCancel) {
  // Pairs of positions with opposite output gradients and nearly equal inputs: the Gram form
  // subtracts numbers that agree in almost all their digits.
  for (const bool gram : {true, false}) {
    const std::size_t n = gram ? 30 : 3, t = 12, b = 40;
    const ModelLayout layout({{"w", {n, n}}, {"b", {n}}});
    Maker<TypeParam> make(11);
    DensePass<TypeParam> dense{make.normal(b * t * n), make.normal(b * t * n), t, 0, 1};
    const auto a = make.open(dense.activations), g = make.open(dense.output_gradients);
    for (std::size_t i = 0; i < b; ++i) {
      const double difference = std::ldexp(1.0, -static_cast<int>(i));
      for (std::size_t s = 0; s < t; s += 2)
        for (std::size_t j = 0; j < n; ++j) {
          const std::size_t first = (i * t + s) * n + j, second = first + n;
          g[second] = -g[first];
          a[second] = static_cast<TypeParam>(a[first] * (1 + difference));
        }
    }
    const BackwardPass<TypeParam> pass{b, {dense}};
    const ClipPlan plan = plan_of(layout, Cut::kTensor, 1.0);
    GradientSum sum(layout);
    const RecordNorms norms = ghost_clip(layout, pass, plan, {}, sum);
    expect_agrees(Model<TypeParam>{layout, pass}, plan, {}, norms, sum);
    EXPECT_GT(norms.norm(b - 1, 0), 0);
  }
}

TYPED_TEST(GhostClip, GivesARecordTheSameNormAndScaleInAnyPlaceAndCompany) {
  Maker<TypeParam> make(12);
  const std::size_t b = 5;
  const Model<TypeParam> m = every_layer(make, b);
  const ClipPlan plan = plan_of(m.layout, Cut::kGroup, 1.5);
  GradientSum sum(m.layout);
  ClipOptions options;
  const RecordNorms together = ghost_clip(m.layout, m.pass, plan, options, sum);
  options.max_microbatch = 1;
  EXPECT_EQ(ghost_clip(m.layout, m.pass, plan, options, sum).norms, together.norms);
  for (std::size_t i = 0; i < b; ++i) {
    BackwardPass<TypeParam> alone{1, m.pass.layers};
    const auto cut = [&](auto& span) {
      span = span.subspan(i * (span.size() / b), span.size() / b);
    };
    for (auto& layer : alone.layers)
      std::visit(
          [&]<class Pass>(Pass& p) {
            cut(p.output_gradients);
            if constexpr (requires { p.activations; }) cut(p.activations);
            if constexpr (requires { p.inputs; }) cut(p.inputs);
            if constexpr (requires { p.tokens; }) cut(p.tokens);
            if constexpr (requires { p.normalised; }) cut(p.normalised);
          },
          layer);
    const RecordNorms one = ghost_clip(m.layout, alone, plan, {}, sum);
    for (std::size_t g = 0; g < plan.partition.parts(); ++g) {
      EXPECT_EQ(one.norm(0, g), together.norm(i, g));
      EXPECT_EQ(one.scale(0, g), together.scale(i, g));
    }
  }
}

TYPED_TEST(GhostClip, AddsToWhatTheSumHolds) {
  Maker<TypeParam> make(13);
  const Model<TypeParam> m = every_layer(make, 3);
  const ClipPlan plan = plan_of(m.layout, Cut::kFlat, 1.0);
  GradientSum once(m.layout), twice(m.layout);
  ghost_clip(m.layout, m.pass, plan, {}, once);
  ghost_clip(m.layout, m.pass, plan, {}, twice);
  ghost_clip(m.layout, m.pass, plan, {}, twice);
  for (std::size_t j = 0; j < once.values().size(); ++j)
    EXPECT_NEAR(twice.values()[j], 2 * once.values()[j], 1e-14);
}

// Left from before: not a number, so that one that is read shows.
GradientSum unwritten(const ModelLayout& layout) {
  GradientSum old(layout);
  std::ranges::fill(old.values(), std::numeric_limits<double>::quiet_NaN());
  return std::move(old).emptied();
}

bool same_bits(const GradientSum& a, const GradientSum& b) {
  return std::memcmp(a.values().data(), b.values().data(), a.values().size_bytes()) == 0;
}

TYPED_TEST(GhostClip, WritesASumWhoseZerosAreNotWrittenWithTheSameBits) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Maker<TypeParam> make(seed);
    const Model<TypeParam> m = every_layer(make, make.number(0, 5));
    const ClipPlan plan = plan_of(m.layout, Cut::kFlat, seed % 4 == 3 ? 0x1p-30 : 2.0);
    ClipOptions options;
    options.binary32_records = make.number(0, 3);
    options.threads = static_cast<int>(1 + seed % 2);
    GradientSum expected(m.layout), sum = unwritten(m.layout);
    ghost_clip(m.layout, m.pass, plan, options, expected);
    ghost_clip(m.layout, m.pass, plan, options, sum);
    EXPECT_TRUE(sum.is_written());
    EXPECT_TRUE(same_bits(sum, expected)) << seed;
  }
}

TEST(GhostSum, WritesMoreRecordsThanABlockAndOddSizesWithTheSameBits) {
  for (const std::size_t records : {1u, 255u, 513u, 1100u}) {
    const ModelLayout layout({{.name = "w", .shape = {13, 37}}});
    std::vector<float> x(records * 37), g(records * 13);
    for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(k % 29) - 14;
    for (std::size_t k = 0; k < g.size(); ++k) g[k] = static_cast<float>(k % 17) - 8;
    const BackwardPass<float> pass{records, {DensePass<float>{x, g, 1, 0, {}}}};
    const ClipPlan plan = plan_of(layout, Cut::kFlat, 1.0);
    GradientSum expected(layout), sum = unwritten(layout);
    ghost_clip(layout, pass, plan, {}, expected);
    ghost_clip(layout, pass, plan, {}, sum);
    EXPECT_TRUE(same_bits(sum, expected)) << records;
    EXPECT_GT(std::ranges::max(sum.values()), 0);
  }
}

TEST(GhostSum, StaysUnwrittenIfARecordIsRefused) {
  const ModelLayout layout({{.name = "w", .shape = {2, 2}}});
  const std::vector<float> x = {1, std::numeric_limits<float>::infinity()}, g = {1, 1};
  const BackwardPass<float> pass{1, {DensePass<float>{x, g, 1, 0, {}}}};
  GradientSum sum = unwritten(layout);
  EXPECT_THROW(ghost_clip(layout, pass, plan_of(layout, Cut::kFlat, 1.0), {}, sum), Error);
  EXPECT_FALSE(sum.is_written());
  sum.settle();
  EXPECT_TRUE(std::ranges::all_of(sum.values(), [](double v) { return v == 0; }));
}

TYPED_TEST(GhostClip, LeavesFrozenAndPublicTensorsAlone) {
  Maker<TypeParam> make(14);
  Model<TypeParam> m = every_layer(make, 3);
  std::vector<Tensor> tensors(m.layout.tensors().begin(), m.layout.tensors().end());
  tensors[0].trainable = false;  // the weight of a layer whose bias is private
  tensors[7].is_public = true;
  const Model<TypeParam> partly{ModelLayout(tensors), m.pass};
  const ClipPlan plan = plan_of(partly.layout, Cut::kLayer, 1.0);
  GradientSum sum(partly.layout);
  const RecordNorms norms = ghost_clip(partly.layout, partly.pass, plan, {}, sum);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto gradient = reference::gradient(partly.layout, partly.pass, i);
    for (std::size_t g = 0; g < plan.partition.parts(); ++g) {
      const auto norm = static_cast<double>(reference::norm(plan.partition, g, gradient.values));
      EXPECT_GE(norms.norm(i, g), norm);
      EXPECT_LE(norms.norm(i, g), norm * (1 + 1e-9));
    }
  }
}

TYPED_TEST(GhostClip, KeepsAHybridsPartsAndTheWholeWithinTheirBounds) {
  Maker<TypeParam> make(15);
  const Model<TypeParam> m = every_layer(make, 6);
  ClipPlan plan = plan_of(m.layout, Cut::kGroup, 1.0);
  plan.flat_clip = 1.25;
  GradientSum sum(m.layout);
  const RecordNorms norms = ghost_clip(m.layout, m.pass, plan, {}, sum);
  for (std::size_t i = 0; i < m.pass.records; ++i) {
    const auto gradient = reference::gradient(m.layout, m.pass, i);
    long double total = 0;
    for (std::size_t g = 0; g < plan.partition.parts(); ++g) {
      const long double clipped =
          norms.scale(i, g) * reference::norm(plan.partition, g, gradient.values);
      EXPECT_LE(clipped, 1.0L);
      total += clipped * clipped;
    }
    EXPECT_LE(std::sqrt(total), 1.25L);
  }
}

TEST(GhostSum, StaysWithinTheStatedErrorOverManyRecords) {
  // All records alike and of norm near the bound: the worst case of adding in binary32.
  const std::size_t n = 64, b = 600;
  const ModelLayout layout({{"w", {n, n}}});
  Maker<float> make(16);
  DensePass<float> dense{make.normal(b * n), make.normal(b * n), 1, 0};
  for (auto* array : {&dense.activations, &dense.output_gradients}) {
    const auto values = make.open(*array);
    for (std::size_t i = n; i < values.size(); ++i) values[i] = values[i - n];
  }
  const Model<float> m{layout, {b, {dense}}};
  const ClipPlan plan = plan_of(layout, Cut::kFlat, 3.0);
  for (const std::size_t run : {0, 1, 7, 128, 256}) {
    ClipOptions options;
    options.binary32_records = run;
    GradientSum sum(layout);
    const RecordNorms norms = ghost_clip(layout, m.pass, plan, options, sum);
    expect_agrees(m, plan, options, norms, sum);
  }
}

TEST(GhostSum, ChargesTheSensitivityForItsRounding) {
  ClipOptions options;
  options.binary32_records = 128;
  const double fixed = sensitivity_factor(4096, 1, options, Slots::kFixed);
  EXPECT_GT(fixed, 1 + 2 * 128.0 * 128 * 0x1p-24);
  EXPECT_LT(fixed, 1.0022);
  EXPECT_GT(sensitivity_factor(4096, 1, options, Slots::kShifted), 1 + 2 * 4096.0 * 128 * 0x1p-24);
  EXPECT_EQ(sensitivity_factor(64, 1, options, Slots::kFixed),
            sensitivity_factor(64, 1, options, Slots::kShifted));
  options.binary32_records = 0;
  EXPECT_LT(sensitivity_factor(256, 256, options, Slots::kShifted), 1 + 2e-5);
  EXPECT_GT(sensitivity_factor(256, 1, options, Slots::kFixed), 1);
  options.binary32_records = 256;
  EXPECT_THROW(sensitivity_factor(1 << 20, 1, options, Slots::kShifted), Error);
  options.binary32_records = 257;
  EXPECT_THROW(sensitivity_factor(1, 1, options, Slots::kFixed), Error);
}

TEST(GhostSum, HasTheSameBitsForEveryWidthOfVectorsWithFusedMultiplyAdd) {
  Maker<float> make(17);
  const std::size_t n = 77, b = 300;
  const ModelLayout layout({{"w", {n, n}}});
  const BackwardPass<float> pass{b,
                                 {DensePass<float>{make.normal(b * n), make.normal(b * n), 1, 0}}};
  const ClipPlan plan = plan_of(layout, Cut::kFlat, 1.0);
  std::vector<double> first;
  numerics::for_each_target([&] {
    if (!(hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL | HWY_NEON))) return;
    GradientSum sum(layout);
    ghost_clip(layout, pass, plan, {}, sum);
    if (first.empty()) first.assign(sum.values().begin(), sum.values().end());
    EXPECT_TRUE(std::ranges::equal(sum.values(), first));
  });
}

}  // namespace
}  // namespace discreet::mechanism
