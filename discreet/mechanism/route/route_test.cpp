#include "discreet/mechanism/route/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "discreet/base/error.h"
#include "discreet/mechanism/route/route_testing.h"
#include "discreet/numerics/rounding.h"

namespace discreet::mechanism {
namespace {

using namespace route_example;

// As the plan reads, coordinate by coordinate.
bool permits(const RoutePlan& plan, const ModelLayout& layout, std::size_t tensor, std::size_t k) {
  for (const RouteBlock& block : plan.blocks)
    for (const RouteTensor& t : block.tensors) {
      if (t.tensor != tensor) continue;
      for (const RouteMask& mask : t.masks) {
        const auto& shape = layout.tensors()[tensor].shape;
        std::size_t inner = 1;
        for (std::size_t axis = mask.slices.axis + 1; axis < shape.size(); ++axis)
          inner *= shape[axis];
        const std::size_t n = shape[mask.slices.axis];
        const std::size_t slice = k / inner % n / (n / mask.slices.count);
        if (std::ranges::count(mask.permitted, slice) == 0) return false;
      }
      return true;
    }
  return false;
}

// The gradient of a record by definition: zeroed, cut by block, cut as a whole.
std::vector<std::vector<long double>> routed(const RoutePlan& plan, const ModelLayout& layout,
                                             std::vector<std::vector<long double>> g) {
  for (std::size_t i = 0; i < g.size(); ++i)
    for (std::size_t k = 0; k < g[i].size(); ++k)
      if (!permits(plan, layout, i, k)) g[i][k] = 0;
  const auto cut = [&](const std::vector<std::size_t>& tensors, long double bound) {
    long double square = 0;
    for (const std::size_t i : tensors)
      for (const long double v : g[i]) square += v * v;
    const long double scale = std::min<long double>(1, bound / (std::sqrt(square) + kEpsClip));
    for (const std::size_t i : tensors)
      for (long double& v : g[i]) v *= scale;
  };
  std::vector<std::size_t> all;
  for (const RouteBlock& block : plan.blocks) {
    std::vector<std::size_t> own;
    for (const RouteTensor& t : block.tensors) own.push_back(t.tensor);
    cut(own, block.clip);
    all.insert(all.end(), own.begin(), own.end());
  }
  if (plan.flat_clip) cut(all, *plan.flat_clip);
  return g;
}

std::vector<std::uint32_t> classes_of(std::size_t records) {
  std::vector<std::uint32_t> out;
  for (std::size_t i = 0; i < records; ++i) {
    const auto c = static_cast<std::uint32_t>(i * 7 % 5);
    out.push_back(c == 4 ? kNoRoute : c);
  }
  return out;
}

std::vector<double> sum_of(const Router& router, const Microbatch& microbatch,
                           const std::vector<std::uint32_t>& classes, ClipOptions options = {}) {
  GradientSum sum(router.layout());
  router.clip(microbatch, classes, {}, options, sum);
  return {sum.values().begin(), sum.values().end()};
}

template <class Real>
void expect_as_by_hand(const Router& router, const Batch<Real>& batch, const Microbatch& microbatch,
                       double tolerance) {
  const auto classes = classes_of(batch.rows.records);
  std::vector<long double> expected;
  std::vector<std::vector<long double>> total(batch.layout.size());
  for (std::size_t i = 0; i < batch.layout.size(); ++i) total[i].resize(batch.layout.elements(i));
  for (std::size_t r = 0; r < classes.size(); ++r) {
    if (classes[r] == kNoRoute) continue;
    const auto g = routed(router.routes().plans[classes[r]], batch.layout, batch.gradient(r));
    for (std::size_t i = 0; i < g.size(); ++i)
      for (std::size_t k = 0; k < g[i].size(); ++k) total[i][k] += g[i][k];
  }
  for (std::size_t i = 0; i < 7; ++i)  // no plan permits the last
    expected.insert(expected.end(), total[i].begin(), total[i].end());
  const std::vector<double> found = sum_of(router, microbatch, classes);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t k = 0; k < found.size(); ++k)
    EXPECT_NEAR(found[k], static_cast<double>(expected[k]), tolerance) << k;
}

TEST(Router, MixedClassesInOneBatchAreEachClippedOverTheirOwnProfile) {
  const Router router(routes(), model());
  for (std::uint64_t seed = 1; seed <= 5; ++seed)
    for (const double size : {.01, 1., 100.}) {
      const Batch<float> narrow(41, seed, 1, size);
      const Batch<double> wide(41, seed, 3, size);
      expect_as_by_hand(router, narrow, narrow.rows, 1e-6);
      expect_as_by_hand(router, narrow, narrow.pass, 1e-5);
      expect_as_by_hand(router, wide, wide.rows, 1e-12);
      expect_as_by_hand(router, wide, wide.pass, 1e-10);
    }
}

TEST(Router, NoRecordAddsMoreThanItsBoundsInAnyBlock) {
  Router router(routes(), model());
  ASSERT_TRUE(router.charge(1e-3, 0.5));
  const Batch<double> batch(20, 3, 2, 1e4);
  for (std::size_t r = 0; r < 20; ++r)
    for (std::uint32_t c = 0; c < 4; ++c) {
      std::vector<std::uint32_t> classes(20, kNoRoute);
      classes[r] = c;
      for (const Microbatch& form : {Microbatch(batch.rows), Microbatch(batch.pass)}) {
        GradientSum sum(router.layout());
        router.clip(form, classes, {}, {}, sum);
        const RoutePlan& plan = router.routes().plans[c];
        long double whole = 0;
        for (const RouteBlock& block : plan.blocks) {
          long double square = 0;
          for (const RouteTensor& t : block.tensors)
            for (const double v : sum.tensor(t.tensor)) square += static_cast<long double>(v) * v;
          EXPECT_LE(std::sqrt(square), block.clip * (1 - router.theta(c)));
          whole += square;
        }
        if (plan.flat_clip) {
          EXPECT_LE(std::sqrt(whole), *plan.flat_clip * (1 - router.theta(c)));
        }
        EXPECT_GT(whole, 0.1 * plan.blocks[0].clip * plan.blocks[0].clip);
      }
    }
}

TEST(Router, WhatARecordMayNotReachIsNotEvenRead) {
  const Router router(routes(), model());
  Batch<float> batch(8);
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  const auto classes = std::vector<std::uint32_t>{0, 1, 2, 3, kNoRoute, 0, 1, 2};
  const std::vector<double> before = sum_of(router, batch.rows, classes);
  const std::vector<double> passes_before = sum_of(router, batch.pass, classes);
  for (std::size_t r = 0; r < 8; ++r)
    for (std::size_t i = 0; i < batch.layout.size(); ++i)
      for (std::size_t k = 0, n = batch.layout.elements(i); k < n; ++k)
        if (classes[r] == kNoRoute ||
            !permits(router.routes().plans[classes[r]], batch.layout, i, k))
          batch.values[i][r * n + k] = nan;
  // The layer that class 0 may not reach, of records 0 and 5; all of record 4.
  for (auto& layer : batch.pass.layers) {
    auto& dense = std::get<DensePass<float>>(layer);
    for (const std::size_t r : {0, 4, 5}) {
      if (dense.weight == 5 && r != 4) continue;
      const auto g = batch.make.open(dense.output_gradients);
      std::fill_n(g.begin() + static_cast<std::ptrdiff_t>(r * g.size() / 8), g.size() / 8, nan);
    }
  }
  EXPECT_EQ(sum_of(router, batch.rows, classes), before);
  EXPECT_EQ(sum_of(router, batch.pass, classes), passes_before);
}

TEST(Router, ANonFiniteValueInTheProfileStopsTheClipOrZeroesTheRecord) {
  const Router router(routes(), model());
  Batch<float> batch(3);
  batch.values[5][18] = std::numeric_limits<float>::infinity();  // record 1
  const std::vector<std::uint32_t> classes{0, 0, 3};
  GradientSum sum(router.layout());
  EXPECT_THROW(router.clip(batch.rows, classes, {}, {}, sum), Error);
  for (const double v : sum.values()) EXPECT_EQ(v, 0);
  ClipOptions zero;
  zero.nonfinite = Nonfinite::kZero;
  EXPECT_EQ(sum_of(router, batch.rows, classes, zero),
            sum_of(router, batch.rows, {0, kNoRoute, 3}, zero));
}

TEST(Router, TheSumIsTheSameOnAnyNumberOfThreadsAndUpToRoundingInAnyOrder) {
  const Router router(routes(), model());
  const Batch<double> batch(64, 9, 2);
  const auto classes = classes_of(64);
  ClipOptions four;
  four.threads = 4;
  four.max_microbatch = 5;
  for (const Microbatch& form : {Microbatch(batch.rows), Microbatch(batch.pass)})
    EXPECT_EQ(sum_of(router, form, classes), sum_of(router, form, classes, four));
  std::vector<std::size_t> order(64);
  for (std::size_t i = 0; i < 64; ++i) order[i] = i * 29 % 64;
  std::vector<std::vector<double>> values(batch.layout.size());
  PerSampleGradients<double> rows{64, {}};
  std::vector<std::uint32_t> moved;
  for (const std::size_t r : order) moved.push_back(classes[r]);
  for (std::size_t i = 0; i < batch.layout.size(); ++i) {
    const std::size_t n = batch.layout.elements(i);
    for (const std::size_t r : order)
      values[i].insert(values[i].end(),
                       batch.values[i].begin() + static_cast<std::ptrdiff_t>(r * n),
                       batch.values[i].begin() + static_cast<std::ptrdiff_t>((r + 1) * n));
    rows.tensors.emplace_back(values[i]);
  }
  const auto a = sum_of(router, batch.rows, classes), b = sum_of(router, rows, moved);
  for (std::size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 1e-12);
}

TEST(Router, OnePlanForTheWholeModelIsOrdinaryClipping) {
  ModelLayout layout = model();
  Routes one{{{layout.hash(), {{"default", 1, .8, {}}}, {}}}, Injection::kPerStep};
  for (std::uint64_t i = 0; i < layout.size(); ++i)
    one.plans[0].blocks[0].tensors.push_back(whole(i));
  const Router router(one, layout);
  const Batch<float> batch(30);
  ClipPlan plan{partition(layout, Cut::kFlat), {.8}, {}};
  GradientSum expected(layout);
  clip(layout, batch.rows, {}, plan, {}, expected);
  const auto found = sum_of(router, batch.rows, std::vector<std::uint32_t>(30, 0));
  for (std::size_t k = 0; k < found.size(); ++k)
    EXPECT_NEAR(found[k], expected.values()[k], 1e-14 * 30);
}

TEST(Router, RoomForRoundingKeepsThePromiseOfTheStrictestClass) {
  Router router(routes(), model());
  // In units of the noise: what the record adds and what rounding may add are at most 1 / m.
  const double rounding = 1e-4;
  ASSERT_TRUE(router.charge(rounding, 0.1));
  const double shift = rounding * std::hypot(.3 / .5, 1. / 2);  // largest bounds of the two blocks
  for (std::size_t c = 0; c < router.classes(); ++c) {
    const double m = router.noise_multiplier(c);
    EXPECT_LE((1 - router.theta(c)) / m + shift, (1 + 1e-12) / m);
    EXPECT_LT(router.theta(c), 1e-2);
    EXPECT_GE(m, router.noise_multiplier());
  }
  EXPECT_EQ(router.noise_multiplier(0), numerics::next_down(2.0));
  EXPECT_FALSE(router.charge(1, 0.1));
  EXPECT_LT(router.theta(0), 1e-2) << "a charge that is refused changes nothing";
}

TEST(Router, RefusesPlansThatDoNotFitTogether) {
  const auto refused = [](const std::function<void(Routes&)>& change) {
    Routes changed = routes();
    change(changed);
    try {
      const Router router(changed, model());
    } catch (const Error& error) {
      return error.sentence();
    }
    return std::string();
  };
  EXPECT_NE(refused([](Routes& r) { r.plans.clear(); }), "");
  EXPECT_NE(refused([](Routes& r) { r.plans[0].blocks[0].stddev = 3; }).find("noise"),
            std::string::npos);
  EXPECT_NE(refused([](Routes& r) { r.plans[0].blocks[0].name = "other"; }).find("c.weight"),
            std::string::npos);
  EXPECT_NE(refused([](Routes& r) { r.plans[0].layout[0] ^= 1; }), "");
  const Router router(routes(), model());
  const Batch<float> batch(2);
  GradientSum sum(router.layout());
  EXPECT_THROW(router.clip(batch.rows, std::vector<std::uint32_t>{0}, {}, {}, sum), Error);
  EXPECT_THROW(router.clip(batch.rows, std::vector<std::uint32_t>{0, 4}, {}, {}, sum), Error);
  EXPECT_THROW(router.clip(batch.pass, std::vector<std::uint32_t>{0, 1}, {.grid = .5}, {}, sum),
               Error);
}

}  // namespace
}  // namespace discreet::mechanism
