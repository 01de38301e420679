#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/ghost/fused.h"
#include "discreet/mechanism/clip/ghost/ghost.h"
#include "discreet/mechanism/clip/ghost/ghost_reference_testing.h"

namespace discreet::mechanism {
namespace {

using reference::every_layer;
using reference::Maker;
using reference::Model;
using reference::plan_of;

template <class Real>
constexpr Real kNan = std::numeric_limits<Real>::quiet_NaN();
template <class Real>
constexpr Real kInfinite = std::numeric_limits<Real>::infinity();

template <class Real>
class GhostEdges : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(GhostEdges, Reals);

// Both operators under the same plan of one bound per layer.
template <class Real>
using Clip = RecordNorms (*)(const ModelLayout&, const BackwardPass<Real>&, const ClipPlan&,
                             const ClipOptions&, GradientSum&);
template <class Real>
std::array<Clip<Real>, 2> operators() {
  return {static_cast<Clip<Real>>(ghost_clip), static_cast<Clip<Real>>(fused_clip)};
}

TYPED_TEST(GhostEdges, ARecordThatIsNotFiniteStopsTheStepAndNothingIsAdded) {
  for (const auto clip : operators<TypeParam>())
    for (std::size_t layer = 0; layer < 7; ++layer)
      for (const TypeParam bad : {kNan<TypeParam>, kInfinite<TypeParam>, -kInfinite<TypeParam>}) {
        Maker<TypeParam> make(20);
        const Model<TypeParam> m = every_layer(make, 4);
        std::visit(
            [&](const auto& p) {
              const auto g = make.open(p.output_gradients);
              g[g.size() / 4 * 2] = bad;
            },
            m.pass.layers[layer]);
        GradientSum sum(m.layout);
        std::ranges::fill(sum.values(), 0.5);
        try {
          clip(m.layout, m.pass, plan_of(m.layout, Cut::kLayer, 1.0), {}, sum);
          FAIL() << "layer " << layer << " took " << bad;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kInvalidGradient);
          EXPECT_NE(error.sentence().find("record 2 "), std::string::npos) << error.sentence();
        }
        EXPECT_TRUE(std::ranges::all_of(sum.values(), [](double v) { return v == 0.5; }));
      }
}

TYPED_TEST(GhostEdges, ARecordThatIsNotFiniteIsLeftOutOfEveryLayerIfAsked) {
  for (const auto clip : operators<TypeParam>())
    for (std::size_t layer = 0; layer < 7; ++layer) {
      // The same batch, record 1 bad in one layer; and its output gradients all zero.
      Maker<TypeParam> make(21), make_zero(21);
      const Model<TypeParam> bad = every_layer(make, 3);
      const Model<TypeParam> zero = every_layer(make_zero, 3);
      std::visit(
          [&](const auto& p) {
            const auto g = make.open(p.output_gradients);
            g[g.size() / 3] = kNan<TypeParam>;
          },
          bad.pass.layers[layer]);
      for (const auto& pass : zero.pass.layers)
        std::visit(
            [&](const auto& p) {
              const auto g = make_zero.open(p.output_gradients);
              std::ranges::fill(g.subspan(g.size() / 3, g.size() / 3), TypeParam{0});
            },
            pass);
      const ClipPlan plan = plan_of(bad.layout, Cut::kLayer, 1.0);
      ClipOptions options;
      options.nonfinite = Nonfinite::kZero;
      GradientSum sum(bad.layout), expected(bad.layout);
      const RecordNorms norms = clip(bad.layout, bad.pass, plan, options, sum);
      clip(zero.layout, zero.pass, plan, options, expected);
      EXPECT_TRUE(std::ranges::equal(sum.values(), expected.values())) << "layer " << layer;
      EXPECT_EQ(norms.zeroed, (std::vector<std::uint8_t>{0, 1, 0}));
      for (std::size_t g = 0; g < norms.parts; ++g) {
        EXPECT_EQ(norms.norm(1, g), 0);
        EXPECT_EQ(norms.scale(1, g), 0);
      }
    }
}

// Under a bound that clips nothing, only records that add little are added in binary32: 2^120
// beside 2^170 of both signs must neither overflow there nor be lost.
TEST(GhostEdges, ARecordThatAddsMuchIsAddedInBinary64UnderAnyBound) {
  const ModelLayout layout({{"w", {1, 1}}});
  const std::vector<float> a = {0x1p50f, 0x1p50f, 0x1p50f, 1},
                           g = {0x1p120f, 0x1p70f, -0x1p120f, 3};
  const BackwardPass<float> pass{4, {DensePass<float>{a, g, 1, 0}}};
  GradientSum sum(layout);
  ghost_clip(layout, pass, plan_of(layout, Cut::kFlat, 0x1p1000), {}, sum);
  EXPECT_EQ(sum.values()[0], 0x1p120);
}

TYPED_TEST(GhostEdges, AnInfiniteInputIsSeenThoughItsOutputGradientIsZero) {
  const ModelLayout layout({{"w", {2, 2}}});
  const std::vector<TypeParam> a = {kInfinite<TypeParam>, 1}, g = {0, 0};
  const BackwardPass<TypeParam> pass{1, {DensePass<TypeParam>{a, g, 1, 0}}};
  const ClipPlan plan = plan_of(layout, Cut::kLayer, 1.0);
  for (const auto clip : operators<TypeParam>()) {
    GradientSum sum(layout);
    EXPECT_THROW(clip(layout, pass, plan, {}, sum), Error);
    ClipOptions options;
    options.nonfinite = Nonfinite::kZero;
    EXPECT_EQ(clip(layout, pass, plan, options, sum).zeroed[0], 1);
    EXPECT_EQ(sum.values()[0], 0);
  }
}

TYPED_TEST(GhostEdges, NothingComesOfNoRecordsAndOfZeros) {
  Maker<TypeParam> make(22);
  const Model<TypeParam> none = every_layer(make, 0), zeros = every_layer(make, 3, 0.0);
  for (const auto clip : operators<TypeParam>()) {
    GradientSum sum(none.layout);
    EXPECT_EQ(clip(none.layout, none.pass, plan_of(none.layout, Cut::kLayer, 1.0), {}, sum).records,
              0u);
    EXPECT_TRUE(std::ranges::all_of(sum.values(), [](double v) { return v == 0; }));
    GradientSum zero_sum(zeros.layout);
    const RecordNorms norms =
        clip(zeros.layout, zeros.pass, plan_of(zeros.layout, Cut::kLayer, 1.0), {}, zero_sum);
    EXPECT_TRUE(std::ranges::all_of(norms.norms, [](double v) { return v == 0; }));
    EXPECT_TRUE(std::ranges::all_of(norms.scales, [](double v) { return v == 1; }));
    EXPECT_TRUE(std::ranges::all_of(zero_sum.values(), [](double v) { return v == 0; }));
  }
}

TYPED_TEST(GhostEdges, HugeAndTinyNumbersKeepTheBound) {
  const std::vector<double> sizes =
      std::is_same_v<TypeParam, float>
          ? std::vector<double>{1e-44, 1e-38, 1e-20, 1e20, 1e30, 3e37}
          : std::vector<double>{1e-320, 1e-300, 1e-160, 1e160, 1e250, 1e300};
  for (const double a_size : sizes)
    for (const double g_size : sizes)
      for (const std::size_t t : {1, 3})
        for (const double clip : {1e-8, 1.0}) {
          Maker<TypeParam> make(23);
          const std::size_t n = 5, b = 2;
          const ModelLayout layout({{"w", {n, n}}});
          const DensePass<TypeParam> dense{make.normal(b * t * n, a_size),
                                           make.normal(b * t * n, g_size), t, 0};
          const Model<TypeParam> m{layout, {b, {dense}}};
          const ClipPlan plan = plan_of(layout, Cut::kFlat, clip);
          GradientSum sum(layout);
          const RecordNorms norms = ghost_clip(layout, m.pass, plan, {}, sum);
          std::vector<long double> expected(n * n);
          for (std::size_t i = 0; i < b; ++i) {
            const auto gradient = reference::gradient(layout, m.pass, i);
            const long double norm = reference::norm(plan.partition, 0, gradient.values);
            EXPECT_GE(norms.norm(i, 0), norm) << a_size << " " << g_size;
            EXPECT_LE(norms.scale(i, 0) * norm, clip);
            // Below 1e-310 a unit of the last place is not small.
            if (norms.norm(i, 0) < 1e300 && norm > 1e-300L && std::min(a_size, g_size) > 1e-310) {
              EXPECT_LE(norms.norm(i, 0), norm * (1 + 1e-10L)) << a_size << " " << g_size;
            }
            for (std::size_t j = 0; j < n * n; ++j)
              expected[j] += norms.scale(i, 0) * gradient.values[0][j];
          }
          for (std::size_t j = 0; j < n * n; ++j)
            EXPECT_NEAR(sum.values()[j], static_cast<double>(expected[j]), clip * 1e-6)
                << a_size << " " << g_size << " " << t;
        }
}

template <class F>
std::string refusal(ErrorCode code, F f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.sentence();
  }
  return "accepted";
}

TEST(LayerPass, RefusesWhatDoesNotFitAndNamesTheTensor) {
  const ModelLayout layout({{"w", {2, 3}}, {"b", {2}}, {"e", {4, 2}}});
  const std::vector<float> six(6), four(4);
  const std::vector<std::int64_t> tokens = {0, 4};
  using Layers = std::vector<LayerPass<float>>;
  const auto sentence = [&](ErrorCode code, Layers layers) {
    return refusal(code, [&] {
      check_pass(layout, BackwardPass<float>{2, std::move(layers)}, "test");
    });
  };
  const DensePass<float> dense{six, four, 1, 0, 1};
  EXPECT_EQ(sentence(ErrorCode::kInvalidGradient, {DensePass<float>{four, four, 1, 0, 1}}),
            "tensor w: found 4 values of activations; expected 2 x 1 x 3");
  EXPECT_EQ(sentence(ErrorCode::kInvalidInput, {dense}),
            "tensor e is private, but has no pass; add the pass of its layer, or mark it public or "
            "not trainable");
  EXPECT_EQ(
      sentence(ErrorCode::kInvalidInput, {dense, DensePass<float>{six, four, 1, 0}}),
      "passes 0 and 1 both contain tensor w; clip tied weights by explicit per-sample gradients");
  EXPECT_EQ(sentence(ErrorCode::kInvalidInput, {dense, EmbeddingPass<float>{tokens, four, 1, 2}}),
            "tensor e has 4 rows; token 4 does not exist");
  EXPECT_EQ(sentence(ErrorCode::kInvalidInput, {DensePass<float>{six, four, 0, 0, 1}}),
            "the pass of tensor w has 0 positions; expected at least 1");
  EXPECT_EQ(sentence(ErrorCode::kInvalidInput, {DensePass<float>{six, four, 1, 9}}),
            "pass 0 names tensor 9; the layout has only 3");
  EXPECT_EQ(sentence(ErrorCode::kInvalidInput, {DensePass<float>{six, four, 1, 1}}),
            "tensor b has 1 dimensions; a dense weight must have 2");
}

TEST(LayerPass, RefusesAConvolutionThatHasNoOutput) {
  const ModelLayout layout({{"w", {4, 1, 5, 5}}});
  ConvolutionPass<float> pass;
  pass.height = pass.width = 3;
  EXPECT_EQ(refusal(ErrorCode::kInvalidInput, [&] { convolution_shape(layout, pass); }),
            "tensor w: a kernel of extent 5 does not fit an input of length 3");
  pass.groups = 3;
  EXPECT_EQ(refusal(ErrorCode::kInvalidInput, [&] { convolution_shape(layout, pass); }),
            "tensor w: 3 groups do not divide 4 outputs");
}

TEST(FusedClip, RefusesABoundThatIsNotKnownWithinALayer) {
  Maker<float> make(24);
  const Model<float> m = every_layer(make, 2);
  GradientSum sum(m.layout);
  const auto sentence = [&](const ClipPlan& plan) {
    return refusal(ErrorCode::kInvalidDpConfig,
                   [&] { fused_clip(m.layout, m.pass, plan, {}, sum); });
  };
  EXPECT_EQ(sentence(plan_of(m.layout, Cut::kFlat, 1.0)),
            "part all has tensors of passes 0 and 1, so its norm cannot be decided within one "
            "layer; use ghost_clip");
  ClipPlan hybrid = plan_of(m.layout, Cut::kLayer, 1.0);
  hybrid.flat_clip = 1.0;
  EXPECT_EQ(sentence(hybrid),
            "a flat bound over all parts cannot be decided within one layer; use ghost_clip");
  ClipPlan unfit = plan_of(ModelLayout({{"w"}}), Cut::kLayer, 1.0);
  EXPECT_EQ(sentence(unfit), "the plan partitions 1 tensors, but the layout has 11");
  ClipPlan zero = plan_of(m.layout, Cut::kLayer, 0.0);
  EXPECT_NE(sentence(zero).find("must be finite and positive"), std::string::npos);
  EXPECT_TRUE(std::ranges::all_of(sum.values(), [](double v) { return v == 0; }));
}

TYPED_TEST(GhostEdges, FusedHasTheBitsOfGhostAndDrawsNoNoise) {
  for (std::uint64_t seed = 30; seed < 40; ++seed) {
    Maker<TypeParam> make(seed);
    const Model<TypeParam> m = every_layer(make, 4);
    for (const Cut cut : {Cut::kLayer, Cut::kGroup, Cut::kTensor}) {
      const ClipPlan plan = plan_of(m.layout, cut, 0.7);
      GradientSum ghost(m.layout), fused(m.layout), again(m.layout);
      const RecordNorms one = ghost_clip(m.layout, m.pass, plan, {}, ghost);
      const RecordNorms other = fused_clip(m.layout, m.pass, plan, {}, fused);
      fused_clip(m.layout, m.pass, plan, {}, again);
      EXPECT_EQ(one.norms, other.norms);
      EXPECT_EQ(one.scales, other.scales);
      EXPECT_TRUE(std::ranges::equal(ghost.values(), fused.values()));
      EXPECT_TRUE(std::ranges::equal(again.values(), fused.values()));
    }
  }
}

}  // namespace
}  // namespace discreet::mechanism
