#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {
namespace {

ClipPlan plan_of(std::vector<double> clip, std::optional<double> flat = std::nullopt) {
  ClipPlan plan;
  plan.clip = std::move(clip);
  plan.flat_clip = flat;
  for (std::size_t g = 0; g < plan.clip.size(); ++g) {
    plan.partition.names.push_back("part" + std::to_string(g));
    plan.partition.part_of.push_back(static_cast<std::uint32_t>(g));
    plan.partition.elements.push_back(1);
  }
  return plan;
}

RecordNorms norms_of(std::size_t parts, std::vector<double> norms) {
  RecordNorms out;
  out.parts = parts;
  out.records = norms.size() / parts;
  out.norms = std::move(norms);
  out.zeroed.assign(out.records, 0);
  return out;
}

TEST(ClipScales, LeaveAShortGradientAloneAndCutALongOne) {
  EXPECT_EQ(clip_scale(0, 1), 1);
  EXPECT_EQ(clip_scale(0.5, 1), 1);
  EXPECT_NEAR(clip_scale(4, 1), 1 / (4 + 1e-8), 1e-15);
  EXPECT_LT(clip_scale(1, 1), 1);  // EPS_CLIP: a norm at the bound is cut by 1e-8
}

TEST(ClipScales, ApproximateEqualityIsWithinEpsEq) {
  EXPECT_TRUE(approximately_equal(1, 1 + 0.9e-10));
  EXPECT_FALSE(approximately_equal(1, 1 + 1.1e-10));
  EXPECT_FALSE(approximately_equal(1 + 1.1e-10, 1));
  EXPECT_FALSE(approximately_equal(std::nan(""), std::nan("")));
}

TEST(ClipScales, NeverLeaveMoreThanTheBoundForAnyNumber) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> exponent(-300, 300);
  for (int i = 0; i < 100000; ++i) {
    const double norm = std::pow(10, exponent(random)), clip = std::pow(10, exponent(random));
    const double scale = clip_scale(norm, clip);
    ASSERT_LE(static_cast<long double>(scale) * norm, clip) << norm << " " << clip;
    ASSERT_GE(scale, 0);
  }
  EXPECT_EQ(clip_scale(std::numeric_limits<double>::denorm_min(), 1), 1);
  EXPECT_GE(clip_scale(1e308, 1), 0);
}

TEST(ClipScales, OfAHybridKeepEveryPartAndTheWholeWithinTheirBounds) {
  std::mt19937_64 random(6);
  std::uniform_real_distribution<double> exponent(-3, 3);
  for (int i = 0; i < 20000; ++i) {
    const auto draw = [&] { return std::pow(10, exponent(random)); };
    const ClipPlan plan = plan_of({draw(), draw(), draw()}, draw());
    RecordNorms norms = norms_of(3, {draw(), draw(), draw()});
    decide_scales(plan, norms);
    long double total = 0;
    for (std::size_t g = 0; g < 3; ++g) {
      const long double clipped = static_cast<long double>(norms.norm(0, g)) * norms.scale(0, g);
      ASSERT_LE(clipped, plan.clip[g]);
      total += clipped * clipped;
    }
    ASSERT_LE(std::sqrt(total), *plan.flat_clip * (1 + 1e-18L));
  }
}

TEST(ClipScales, OfAZeroedRecordAreZero) {
  RecordNorms norms = norms_of(2, {0, 0, 3, 4});
  norms.zeroed[0] = 1;
  decide_scales(plan_of({1, 8}), norms);
  EXPECT_EQ(norms.scale(0, 0), 0);
  EXPECT_EQ(norms.scale(0, 1), 0);
  EXPECT_GT(norms.scale(1, 0), 0);
  EXPECT_EQ(norms.scale(1, 1), 1);
}

TEST(ClipScales, RefuseABoundThatIsNoneAndNameItsPart) {
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    RecordNorms norms = norms_of(2, {1, 1});
    try {
      decide_scales(plan_of({1, bad}), norms);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
      EXPECT_NE(error.sentence().find("part1"), std::string::npos);
    }
    EXPECT_TRUE(norms.scales.empty());
  }
  RecordNorms norms = norms_of(2, {1, 1});
  EXPECT_THROW(decide_scales(plan_of({1}), norms), Error);
}

}  // namespace
}  // namespace discreet::mechanism
