#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/clip_batch.h"
#include "discreet/mechanism/clip/clip_plan.h"

namespace discreet::mechanism {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ModelLayout model() {
  return ModelLayout({{.name = "a", .shape = {97, 53}},
                      {.name = "frozen", .shape = {10}, .trainable = false},
                      {.name = "b", .shape = {31}}});
}

template <class Real>
struct Batch {
  std::vector<std::vector<Real>> values{3};
  PerSampleGradients<Real> view;
  explicit Batch(std::size_t records, double size = 1) {
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    view.records = records;
    for (const std::size_t i : {0, 2}) {
      values[i].resize(records * model().elements(i));
      for (Real& x : values[i]) x = static_cast<Real>(size * normal(random));
    }
    for (const auto& v : values) view.tensors.emplace_back(v);
  }
  Batch(const Batch&) = delete;

  long double l1(std::size_t record) const {
    long double total = 0;
    for (const std::size_t i : {0, 2}) {
      const std::size_t n = model().elements(i);
      for (std::size_t k = 0; k < n; ++k)
        total += std::fabs(static_cast<long double>(values[i][record * n + k]));
    }
    return total;
  }
};

constexpr ClipMethod kL1{.norm = Norm::kL1};

ClipPlan flat(double bound) { return {partition(model(), Cut::kFlat), {bound}, {}}; }

template <class Real>
class ClipInL1 : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(ClipInL1, Reals);

TYPED_TEST(ClipInL1, ARecordAddsNoMoreThanTheBoundInL1AndIsScaledByItsOwnNorm) {
  for (const double bound : {1e-3, 4137.0, 1e6}) {
    const Batch<TypeParam> batch(9);
    for (std::size_t r = 0; r < 9; ++r) {
      PerSampleGradients<TypeParam> one{1, {}};
      for (std::size_t i = 0; i < 3; ++i) {
        const std::size_t n = batch.values[i].size() / 9;
        one.tensors.push_back(batch.view.tensors[i].subspan(r * n, n));
      }
      GradientSum sum(model());
      const RecordNorms norms = clip(model(), one, kL1, flat(bound), {}, sum);
      const long double exact = batch.l1(r);
      EXPECT_GE(norms.norm(0, 0), exact);
      EXPECT_LE(norms.norm(0, 0), exact * (1 + 1e-13L));
      long double added = 0;
      for (const double v : sum.values()) added += std::fabs(static_cast<long double>(v));
      EXPECT_LE(added, bound);
      EXPECT_GE(added, std::min<long double>(bound, exact) * (1 - 1e-10L));
      for (std::size_t k = 0; k < 31; ++k)
        EXPECT_NEAR(sum.tensor(2)[k],
                    static_cast<double>(one.tensors[2][k]) *
                        std::min(1.0, bound / (static_cast<double>(exact) + kEpsClip)),
                    1e-12);
    }
  }
}

TYPED_TEST(ClipInL1, TheSumIsTheSameOnAnyNumberOfThreads) {
  const Batch<TypeParam> batch(40);
  GradientSum one(model()), many(model());
  ClipOptions threads;
  threads.threads = 3;
  clip(model(), batch.view, kL1, flat(2), {}, one);
  clip(model(), batch.view, kL1, flat(2), threads, many);
  EXPECT_TRUE(std::ranges::equal(one.values(), many.values()));
}

TYPED_TEST(ClipInL1, ARecordThatIsNotFiniteStopsTheClipOrIsLeftOut) {
  Batch<TypeParam> batch(3);
  batch.values[2][31 + 4] = std::numeric_limits<TypeParam>::quiet_NaN();
  GradientSum sum(model());
  try {
    clip(model(), batch.view, kL1, flat(1), {}, sum);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidGradient);
    EXPECT_NE(error.sentence().find("tensor b is not finite in record 1"), std::string::npos);
  }
  for (const double v : sum.values()) EXPECT_EQ(v, 0);
  ClipOptions zero;
  zero.nonfinite = Nonfinite::kZero;
  const RecordNorms norms = clip(model(), batch.view, kL1, flat(1), zero, sum);
  EXPECT_EQ(norms.zeroed, (std::vector<std::uint8_t>{0, 1, 0}));
  EXPECT_EQ(norms.scale(1, 0), 0);
  EXPECT_GT(norms.scale(2, 0), 0);
}

TEST(ClipInL1Edges, ZeroHugeAndForeignGradients) {
  Batch<double> batch(2, 0);
  GradientSum sum(model());
  EXPECT_EQ(clip(model(), batch.view, kL1, flat(1), {}, sum).norm(0, 0), 0);
  for (double& x : batch.values[0]) x = 1e308;
  const RecordNorms huge = clip(model(), batch.view, kL1, flat(1), {}, sum);
  EXPECT_EQ(huge.norm(0, 0), kInfinity);
  for (const double v : sum.values()) EXPECT_EQ(v, 0);
  PerSampleGradients<double> cut = batch.view;
  cut.records = 3;
  EXPECT_THROW(clip(model(), cut, kL1, flat(1), {}, sum), Error);
  EXPECT_THROW(clip(model(), BackwardPass<float>{}, kL1, flat(1), {}, sum), Error);
  EXPECT_THROW(clip(model(), batch.view, kL1, flat(-1), {}, sum), Error);
  const ClipPlan layers{partition(model(), Cut::kTensor), {1, 1}, {}};
  EXPECT_THROW(clip(model(), batch.view, kL1, layers, {}, sum), Error);
}

}  // namespace
}  // namespace discreet::mechanism
