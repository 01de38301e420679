#include "discreet/mechanism/clip/clip_rows.h"

#include <gtest/gtest.h>
#include <mpfr.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/clip_plan.h"

namespace discreet::mechanism {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Gradients that own their values; tensors that are not private have none.
template <class Real>
struct Batch {
  std::vector<std::vector<Real>> values;
  PerSampleGradients<Real> view;

  Batch(const ModelLayout& layout, std::size_t records) : values(layout.size()) {
    view.records = records;
    for (std::size_t i = 0; i < layout.size(); ++i) {
      if (layout.tensors()[i].is_private()) values[i].resize(records * layout.elements(i));
      view.tensors.emplace_back(values[i]);
    }
  }
  Batch(const Batch&) = delete;
};

template <class Real>
void fill(Batch<Real>& batch, unsigned seed, double size = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (auto& tensor : batch.values)
    for (Real& x : tensor) x = static_cast<Real>(size * normal(random));
}

// Odd lengths, one tensor of two pieces, one that is not trained, one without elements.
ModelLayout odd_model() {
  return ModelLayout({{.name = "a.weight", .shape = {131, 257}},
                      {.name = "a.bias", .shape = {131}},
                      {.name = "frozen.weight", .shape = {1000}, .trainable = false},
                      {.name = "b.weight", .shape = {7, 131}, .group = "top"},
                      {.name = "b.empty", .shape = {0, 5}, .group = "top"},
                      {.name = "c.scale", .shape = {}, .group = "top"}});
}

// The exact norm of a part of a record, and of what is added for it, by MPFR.
template <class Real>
struct Exact {
  mpfr_t total, term;
  Exact() {
    mpfr_inits2(600, total, term, nullptr);
    mpfr_set_zero(total, 1);
  }
  ~Exact() { mpfr_clears(total, term, nullptr); }
  void add(double x) {
    mpfr_set_d(term, x, MPFR_RNDN);
    mpfr_sqr(term, term, MPFR_RNDN);
    mpfr_add(total, total, term, MPFR_RNDN);
  }
  bool at_most(double bound) {
    mpfr_set_d(term, bound, MPFR_RNDN);
    mpfr_sqr(term, term, MPFR_RNDN);
    return mpfr_lessequal_p(total, term) != 0;
  }
};

template <class Real, class F>
void each_value(const ModelLayout& layout, const Partition& partition, const Batch<Real>& batch,
                std::size_t record, std::size_t part, F f) {
  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (partition.part_of[i] != part) continue;
    for (std::size_t k = 0; k < layout.elements(i); ++k)
      f(i, k, batch.values[i][record * layout.elements(i) + k]);
  }
}

template <class Real>
GradientSum clipped(const ModelLayout& layout, const Batch<Real>& batch, const ClipPlan& plan,
                    const ClipOptions& options = {}, RecordNorms* norms = nullptr) {
  GradientSum sum(layout);
  RecordNorms seen = clip_per_sample(layout, batch.view, plan, options, sum);
  if (norms != nullptr) *norms = std::move(seen);
  return sum;
}

std::vector<double> copy(const GradientSum& sum) {
  return {sum.values().begin(), sum.values().end()};
}

bool same_bits(std::span<const double> a, std::span<const double> b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) {
           return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
         });
}

template <class Real>
class ClipRows : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(ClipRows, Reals);

// VII.B: fixed synthetic gradients, scales by hand.
TYPED_TEST(ClipRows, GiveTheScalesComputedByHand) {
  const ModelLayout layout({{.name = "a.w", .shape = {2}}, {.name = "b.w", .shape = {2}}});
  Batch<TypeParam> batch(layout, 3);
  batch.values[0] = {3, 4, 0.25, 0, 0, 0};
  batch.values[1] = {0, 12, 0, 0.25, 0, 0};

  RecordNorms norms;  // norms 13, sqrt(1/8), 0
  const GradientSum flat = clipped(layout, batch, clip_plan(layout, Cut::kFlat, 1), {}, &norms);
  EXPECT_NEAR(norms.norm(0, 0), 13, 1e-13);
  EXPECT_NEAR(norms.scale(0, 0), 1 / (13 + 1e-8), 1e-14);
  EXPECT_EQ(norms.scale(1, 0), 1);
  EXPECT_EQ(norms.norm(2, 0), 0);
  EXPECT_EQ(norms.scale(2, 0), 1);
  EXPECT_NEAR(flat.tensor(0)[0], 3 / (13 + 1e-8) + 0.25, 1e-14);
  EXPECT_NEAR(flat.tensor(1)[1], 12 / (13 + 1e-8) + 0.25, 1e-14);

  const ClipPlan by_tensor = clip_plan(layout, Cut::kTensor, {{"a.w", 1}, {"b.w", 24}});
  const GradientSum two = clipped(layout, batch, by_tensor, {}, &norms);
  EXPECT_NEAR(norms.norm(0, 0), 5, 1e-14);
  EXPECT_NEAR(norms.scale(0, 0), 1 / (5 + 1e-8), 1e-14);
  EXPECT_EQ(norms.scale(0, 1), 1);
  EXPECT_NEAR(two.tensor(0)[1], 4 / (5 + 1e-8), 1e-14);
  EXPECT_EQ(two.tensor(1)[1], 12.25);

  ClipPlan hybrid = by_tensor;  // after the parts: norms 1 and 12; together sqrt(145) > 2
  hybrid.flat_clip = 2;
  clipped(layout, batch, hybrid, {}, &norms);
  EXPECT_NEAR(norms.scale(0, 1), 2 / std::sqrt(145.0), 1e-8);
  EXPECT_NEAR(norms.scale(0, 0), 2 / std::sqrt(145.0) / 5, 1e-8);
  EXPECT_EQ(norms.scale(1, 0), 1);
}

TYPED_TEST(ClipRows, NeverLeaveARecordAboveItsBoundInExactArithmetic) {
  const ModelLayout layout = odd_model();
  for (const double size : {1e-30, 1e-3, 1.0, 1e12, 1e30}) {
    Batch<TypeParam> batch(layout, 3);
    fill(batch, 17, size);
    for (const Cut cut : {Cut::kFlat, Cut::kLayer, Cut::kGroup, Cut::kTensor}) {
      const ClipPlan plan = clip_plan(layout, cut, 0.7 * size);
      RecordNorms norms;
      clipped(layout, batch, plan, {}, &norms);
      for (std::size_t r = 0; r < 3; ++r)
        for (std::size_t g = 0; g < plan.partition.parts(); ++g) {
          Exact<TypeParam> norm, added;
          const double scale = norms.scale(r, g);
          each_value(layout, plan.partition, batch, r, g, [&](std::size_t, std::size_t, double x) {
            norm.add(x);
            added.add(scale * x);  // as it is rounded before it is added
          });
          EXPECT_TRUE(norm.at_most(norms.norm(r, g)));
          EXPECT_FALSE(norms.norm(r, g) > 0 && norm.at_most(norms.norm(r, g) * (1 - 1e-14)));
          EXPECT_TRUE(added.at_most(plan.clip[g])) << size << " " << plan.partition.names[g];
        }
    }
  }
}

TYPED_TEST(ClipRows, OfAHybridKeepPartsAndWholeWithinTheirBounds) {
  const ModelLayout layout = odd_model();
  Batch<TypeParam> batch(layout, 4);
  fill(batch, 18);
  ClipPlan plan = clip_plan(layout, Cut::kGroup, {{"a", 3}, {"top", 2}});
  plan.flat_clip = 2.5;
  RecordNorms norms;
  clipped(layout, batch, plan, {}, &norms);
  for (std::size_t r = 0; r < 4; ++r) {
    Exact<TypeParam> whole;
    for (std::size_t g = 0; g < 2; ++g) {
      Exact<TypeParam> part;
      each_value(layout, plan.partition, batch, r, g, [&](std::size_t, std::size_t, double x) {
        part.add(norms.scale(r, g) * x);
        whole.add(norms.scale(r, g) * x);
      });
      EXPECT_TRUE(part.at_most(plan.clip[g]));
    }
    EXPECT_TRUE(whole.at_most(2.5));
    EXPECT_FALSE(whole.at_most(2.4));
  }
}

// Every coordinate: its terms in long double, within the bound of ascending binary64 addition.
TYPED_TEST(ClipRows, SumTheScaledGradientsWithinTheStatedBound) {
  const ModelLayout layout = odd_model();
  constexpr std::size_t kRecords = 70;  // more than the rows of one kernel call
  Batch<TypeParam> batch(layout, kRecords);
  fill(batch, 19);
  const ClipPlan plan = clip_plan(layout, Cut::kLayer, 0.5);
  RecordNorms norms;
  const GradientSum sum = clipped(layout, batch, plan, {}, &norms);
  for (std::size_t g = 0; g < plan.partition.parts(); ++g)
    each_value(layout, plan.partition, batch, 0, g, [&](std::size_t i, std::size_t k, double) {
      long double exact = 0, size = 0;
      for (std::size_t r = 0; r < kRecords; ++r) {
        const long double term =
            norms.scale(r, g) * double{batch.values[i][r * layout.elements(i) + k]};
        exact += term;
        size += std::fabs(term);
      }
      ASSERT_LE(std::fabs(sum.tensor(i)[k] - exact), (kRecords + 1) * 0x1p-53L * size);
    });
}

TYPED_TEST(ClipRows, DependOnNeitherMicrobatchesNorThreads) {
  const ModelLayout layout({{.name = "a.w", .shape = {300, 257}},
                            {.name = "b.w", .shape = {33000}},
                            {.name = "b.bias", .shape = {3}}});
  Batch<TypeParam> batch(layout, 37);
  fill(batch, 20);
  for (const Cut cut : {Cut::kFlat, Cut::kLayer, Cut::kTensor}) {
    const ClipPlan plan = clip_plan(layout, cut, 2);
    RecordNorms expected_norms;
    const GradientSum expected = clipped(layout, batch, plan, {}, &expected_norms);
    for (const std::size_t microbatch : {1, 2, 5, 36, 37, 1000})
      for (const int threads : {-1, 1, 2, 3}) {
        RecordNorms norms;
        const GradientSum sum = clipped(layout, batch, plan,
                                        {.max_microbatch = microbatch, .threads = threads}, &norms);
        ASSERT_TRUE(same_bits(sum.values(), expected.values())) << microbatch << " " << threads;
        ASSERT_TRUE(same_bits(norms.norms, expected_norms.norms));
        ASSERT_TRUE(same_bits(norms.scales, expected_norms.scales));
      }
  }
}

TYPED_TEST(ClipRows, PermutingRecordsChangesNoBitOfARecordsOwnResult) {
  const ModelLayout layout = odd_model();
  constexpr std::size_t kRecords = 9;
  Batch<TypeParam> batch(layout, kRecords), permuted(layout, kRecords);
  fill(batch, 21);
  std::vector<std::size_t> order(kRecords);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(3));
  for (std::size_t i = 0; i < layout.size(); ++i)
    for (std::size_t r = 0; r < kRecords && !batch.values[i].empty(); ++r)
      std::copy_n(batch.values[i].begin() + static_cast<long>(order[r] * layout.elements(i)),
                  layout.elements(i),
                  permuted.values[i].begin() + static_cast<long>(r * layout.elements(i)));
  ClipPlan plan = clip_plan(layout, Cut::kLayer, 1);
  for (const bool flat : {false, true}) {
    if (flat) plan.flat_clip = 1.5;
    RecordNorms a, b;
    const GradientSum sum_a = clipped(layout, batch, plan, {}, &a);
    const GradientSum sum_b = clipped(layout, permuted, plan, {}, &b);
    for (std::size_t r = 0; r < kRecords; ++r)
      for (std::size_t g = 0; g < plan.partition.parts(); ++g) {
        EXPECT_EQ(b.norm(r, g), a.norm(order[r], g));
        EXPECT_EQ(b.scale(r, g), a.scale(order[r], g));
      }
    for (std::size_t k = 0; k < sum_a.values().size(); ++k)
      ASSERT_NEAR(sum_a.values()[k], sum_b.values()[k], 1e-14);
  }
}

// EPS_CLIP is the only thing with a size: beyond 2^53 EPS_CLIP it is rounded away, and gradients
// and bound times a power of two give the same bits times it. Below, it costs EPS_CLIP / n.
TYPED_TEST(ClipRows, ScaleWithGradientsAndBound) {
  const ModelLayout layout = odd_model();
  for (const int exponent : {-20, 1, 30}) {
    for (const double size : {1.0, 0x1p50}) {
      Batch<TypeParam> batch(layout, 3), scaled(layout, 3);
      fill(batch, 22, size);
      for (std::size_t i = 0; i < layout.size(); ++i)
        for (std::size_t k = 0; k < batch.values[i].size(); ++k)
          scaled.values[i][k] = std::ldexp(batch.values[i][k], exponent);
      const GradientSum a = clipped(layout, batch, clip_plan(layout, Cut::kTensor, size));
      const GradientSum b =
          clipped(layout, scaled, clip_plan(layout, Cut::kTensor, std::ldexp(size, exponent)));
      for (std::size_t k = 0; k < a.values().size(); ++k) {
        const double expected = std::ldexp(a.values()[k], exponent);
        if (size > 1)
          ASSERT_EQ(b.values()[k], expected);
        else  // norms of the scaled records are at least 1e-7
          ASSERT_NEAR(b.values()[k], expected, 0.2 * std::fabs(expected) + 1e-300);
      }
    }
  }
}

TYPED_TEST(ClipRows, AddToWhatTheSumAlreadyHolds) {
  const ModelLayout layout = odd_model();
  Batch<TypeParam> all(layout, 6), first(layout, 4), rest(layout, 2);
  fill(all, 23);
  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (all.values[i].empty()) continue;
    const auto middle = all.values[i].begin() + static_cast<long>(4 * layout.elements(i));
    std::copy(all.values[i].begin(), middle, first.values[i].begin());
    std::copy(middle, all.values[i].end(), rest.values[i].begin());
  }
  const ClipPlan plan = clip_plan(layout, Cut::kGroup, 1);
  GradientSum sum(layout);
  clip_per_sample(layout, first.view, plan, {}, sum);
  clip_per_sample(layout, rest.view, plan, {}, sum);
  EXPECT_TRUE(same_bits(sum.values(), clipped(layout, all, plan).values()));
}

TYPED_TEST(ClipRows, AbortNamesTensorAndRecordAndLeavesEveryBitOfTheSum) {
  const ModelLayout layout = odd_model();
  for (const double bad : {std::nan(""), kInfinity, -kInfinity})
    for (const Cut cut : {Cut::kFlat, Cut::kTensor})
      for (const bool hybrid : {false, true}) {
        Batch<TypeParam> batch(layout, 12);
        fill(batch, 24);
        batch.values[3][7 * layout.elements(3) + 5] = static_cast<TypeParam>(bad);
        batch.values[5][9] = static_cast<TypeParam>(bad);
        ClipPlan plan = clip_plan(layout, cut, 1);
        if (hybrid) plan.flat_clip = 1;
        for (const auto& [microbatch, start] :
             {std::pair{1u, 0.1}, {256u, 0.1}, {1u, 0.0}, {256u, 0.0}, {1u, -0.0}}) {
          GradientSum sum(layout);
          for (std::size_t k = 0; k < sum.values().size(); ++k) sum.values()[k] = start * double(k);
          const std::vector<double> before = copy(sum);
          try {
            clip_per_sample(layout, batch.view, plan, {.max_microbatch = microbatch}, sum);
            FAIL();
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::kInvalidGradient);
            EXPECT_NE(error.sentence().find("tensor b.weight"), std::string::npos);
            EXPECT_NE(error.sentence().find("record 7"), std::string::npos);
          }
          EXPECT_TRUE(same_bits(sum.values(), before));
        }
      }
}

TYPED_TEST(ClipRows, ZeroLeavesARecordOutOfEveryPartAndCountsIt) {
  const ModelLayout layout = odd_model();
  Batch<TypeParam> batch(layout, 12), without(layout, 12);
  fill(batch, 25);
  for (std::size_t i = 0; i < layout.size(); ++i) {
    without.values[i] = batch.values[i];
    for (std::size_t k = 0; k < layout.elements(i) && !without.values[i].empty(); ++k)
      without.values[i][7 * layout.elements(i) + k] = 0;
  }
  without.view = PerSampleGradients<TypeParam>{12, {}};
  for (const auto& tensor : without.values) without.view.tensors.emplace_back(tensor);
  batch.values[5][7] = std::numeric_limits<TypeParam>::quiet_NaN();  // the last part
  for (const Cut cut : {Cut::kFlat, Cut::kTensor})
    for (const std::size_t microbatch : {1, 256}) {
      const ClipOptions options{.nonfinite = Nonfinite::kZero, .max_microbatch = microbatch};
      const ClipPlan plan = clip_plan(layout, cut, 1);
      RecordNorms norms;
      const GradientSum sum = clipped(layout, batch, plan, options, &norms);
      EXPECT_TRUE(same_bits(sum.values(), clipped(layout, without, plan).values()));
      for (std::size_t r = 0; r < 12; ++r) EXPECT_EQ(norms.zeroed[r], r == 7 ? 1 : 0);
      for (std::size_t g = 0; g < plan.partition.parts(); ++g) {
        EXPECT_EQ(norms.norm(7, g), 0);
        EXPECT_EQ(norms.scale(7, g), 0);
      }
    }
}

TYPED_TEST(ClipRows, AnEmptyBatchAndEmptyTensorsChangeNothing) {
  const ModelLayout layout = odd_model();
  Batch<TypeParam> none(layout, 0);
  RecordNorms norms;
  const GradientSum sum = clipped(layout, none, clip_plan(layout, Cut::kLayer, 1), {}, &norms);
  EXPECT_EQ(norms.records, 0u);
  for (const double x : sum.values()) EXPECT_EQ(x, 0);

  const ModelLayout hollow(std::vector<Tensor>{{.name = "e", .shape = {0}}});
  Batch<TypeParam> five(hollow, 5);
  clipped(hollow, five, clip_plan(hollow, Cut::kFlat, 1), {}, &norms);
  EXPECT_EQ(norms.norms, std::vector<double>(5, 0.0));

  const ModelLayout nothing(std::vector<Tensor>{});
  Batch<TypeParam> of_nothing(nothing, 2);
  clipped(nothing, of_nothing, clip_plan(nothing, Cut::kFlat, 1), {}, &norms);
  EXPECT_EQ(norms.records, 2u);
}

TYPED_TEST(ClipRows, ZerosStayZerosAndDenormalsAreNotLost) {
  const ModelLayout layout(std::vector<Tensor>{{.name = "w", .shape = {300}}});
  Batch<TypeParam> batch(layout, 2);
  const TypeParam tiny = std::numeric_limits<TypeParam>::denorm_min();
  std::fill_n(batch.values[0].begin(), 300, tiny);
  RecordNorms norms;
  const GradientSum sum = clipped(layout, batch, clip_plan(layout, Cut::kFlat, 1), {}, &norms);
  EXPECT_GE(norms.norm(0, 0), 17 * double{tiny});  // sqrt(300) = 17.3...
  EXPECT_LE(norms.norm(0, 0), 20 * double{tiny});
  EXPECT_EQ(sum.values()[299], double{tiny});
  EXPECT_EQ(norms.norm(1, 0), 0);
}

TEST(ClipRowsRange, ANormThatOverflowsScalesItsRecordToZeroAndIsNotCountedAsZeroed) {
  const ModelLayout layout({{.name = "v", .shape = {2}}, {.name = "w", .shape = {4}}});
  Batch<double> batch(layout, 2);
  batch.values[0] = {1, 0, 1, 0};
  batch.values[1] = {1.5e308, 1.5e308, 1.5e308, 1.5e308, 1e308, 0, 0, 0};
  RecordNorms norms;
  GradientSum sum = clipped(layout, batch, clip_plan(layout, Cut::kFlat, 1), {}, &norms);
  EXPECT_EQ(norms.norm(0, 0), kInfinity);
  EXPECT_EQ(norms.scale(0, 0), 0);
  EXPECT_EQ(norms.zeroed[0], 0);
  EXPECT_GT(norms.scale(1, 0), 0);
  EXPECT_LE(sum.tensor(1)[0], 1);
  EXPECT_GT(sum.tensor(1)[0], 0.99);
  ClipPlan hybrid = clip_plan(layout, Cut::kTensor, 1);
  hybrid.flat_clip = 1;
  sum = clipped(layout, batch, hybrid, {}, &norms);
  EXPECT_EQ(norms.scale(0, 1), 0);
  EXPECT_GT(norms.scale(0, 0), 0.5);  // the other part is ordinary
  for (const double x : sum.values()) EXPECT_TRUE(std::isfinite(x));
}

TEST(ClipRowsRange, TheLargestBinary32ValuesDoNotOverflow) {
  const ModelLayout layout(std::vector<Tensor>{{.name = "w", .shape = {40000}}});
  Batch<float> batch(layout, 1);
  std::fill(batch.values[0].begin(), batch.values[0].end(), std::numeric_limits<float>::max());
  RecordNorms norms;
  const GradientSum sum = clipped(layout, batch, clip_plan(layout, Cut::kFlat, 1), {}, &norms);
  EXPECT_NEAR(norms.norm(0, 0) / (200 * double{std::numeric_limits<float>::max()}), 1, 1e-14);
  EXPECT_NEAR(sum.values()[0], 1.0 / 200, 1e-15);
}

TEST(ClipRowsInput, RefusesWhatDoesNotFitTogetherAndLeavesTheSum) {
  const ModelLayout layout = odd_model();
  Batch<float> batch(layout, 2);
  fill(batch, 26);
  const ClipPlan plan = clip_plan(layout, Cut::kFlat, 1);
  GradientSum sum(layout);
  const auto refusal = [&](const PerSampleGradients<float>& view, const ClipPlan& with,
                           const ClipOptions& options, GradientSum& into) {
    try {
      clip_per_sample(layout, view, with, options, into);
    } catch (const Error& error) {
      return std::string(to_string(error.code())) + " " + error.sentence();
    }
    return std::string("accepted");
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  auto wrong = batch.view;
  wrong.tensors[1] = wrong.tensors[1].subspan(1);
  EXPECT_EQ(refusal(wrong, plan, {}, sum),
            "INVALID_GRADIENT tensor a.bias has 261 values; expected 2 records of 131 elements");
  wrong = batch.view;
  wrong.tensors.pop_back();
  EXPECT_TRUE(has(refusal(wrong, plan, {}, sum), "INVALID_GRADIENT found gradients of 5 tensors"));
  wrong = batch.view;
  wrong.records = 3;
  EXPECT_TRUE(has(refusal(wrong, plan, {}, sum), "INVALID_GRADIENT tensor a.weight"));
  EXPECT_TRUE(has(refusal(batch.view, plan, {.max_microbatch = 0}, sum), "INVALID_DP_CONFIG"));
  EXPECT_TRUE(has(refusal(batch.view, clip_plan(layout, Cut::kFlat, -1.0), {}, sum),
                  "INVALID_DP_CONFIG the clip bound of all is -1"));
  EXPECT_TRUE(
      has(refusal(Batch<float>(layout, 0).view, clip_plan(layout, Cut::kFlat, -1.0), {}, sum),
          "INVALID_DP_CONFIG"));
  ClipPlan other = plan;
  other.partition.part_of[2] = 0;  // a frozen tensor
  EXPECT_TRUE(has(refusal(batch.view, other, {}, sum), "INVALID_DP_CONFIG tensor frozen.weight"));
  other = plan;
  other.partition.part_of[0] = Partition::kNone;  // a private one left out
  EXPECT_TRUE(has(refusal(batch.view, other, {}, sum), "INVALID_DP_CONFIG tensor a.weight"));
  GradientSum small(ModelLayout(std::vector<Tensor>{{.name = "w", .shape = {2}}}));
  EXPECT_TRUE(has(refusal(batch.view, plan, {}, small), "INVALID_INPUT the sum belongs"));
  for (const double x : sum.values()) EXPECT_EQ(x, 0);
}

TEST(ClipRowsInput, TensorsThatAreNotPrivateAreNotRead) {
  const ModelLayout layout = odd_model();
  Batch<float> batch(layout, 2);
  fill(batch, 27);
  const std::vector<float> poison(2000, std::numeric_limits<float>::quiet_NaN());
  const GradientSum expected = clipped(layout, batch, clip_plan(layout, Cut::kFlat, 1));
  batch.view.tensors[2] = poison;
  EXPECT_TRUE(same_bits(clipped(layout, batch, clip_plan(layout, Cut::kFlat, 1)).values(),
                        expected.values()));
}

TEST(SummationCharge, BoundsTheRoundingOfASumAndIsSmall) {
  EXPECT_EQ(summation_charge(0), 0);
  EXPECT_GT(summation_charge(1), 0x1p-52);
  EXPECT_LT(summation_charge(4096), 4e-9);
  EXPECT_GT(summation_charge(4096), 3.7e-9);
  EXPECT_EQ(summation_charge(std::uint64_t{1} << 40), kInfinity);
  double last = 0;
  for (std::uint64_t n = 1; n < std::uint64_t{1} << 40; n *= 2) {
    EXPECT_GT(summation_charge(n), last);
    last = summation_charge(n);
  }
}

}  // namespace
}  // namespace discreet::mechanism
