#include "discreet/mechanism/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <random>

#include "discreet/base/error.h"
#include "discreet/mechanism/apply.h"
#include "discreet/mechanism/config_resolve.h"
#include "discreet/mechanism/ghost_reference_testing.h"
#include "discreet/numerics/rounding.h"

namespace discreet::mechanism {
namespace {

// Two attention layers (heads along rows, and along columns of the output), experts, a head.
ModelLayout model() {
  return ModelLayout({{.name = "a.query", .shape = {8, 6}, .heads = Slices{4, 0}},
                      {.name = "a.query_bias", .shape = {8}, .heads = Slices{4, 0}},
                      {.name = "a.out", .shape = {6, 8}, .heads = Slices{4, 1}},
                      {.name = "b.experts", .shape = {9, 6}, .experts = Slices{3, 0}},
                      {.name = "b.experts_bias", .shape = {9}},
                      {.name = "c.weight", .shape = {3, 6}},
                      {.name = "c.bias", .shape = {3}},
                      {.name = "closed.weight", .shape = {2, 6}}});
}

RouteTensor whole(std::uint64_t tensor) { return {tensor, {}}; }
RouteTensor part(std::uint64_t tensor, Slices slices, std::vector<std::uint32_t> permitted) {
  return {tensor, {{slices, std::move(permitted)}}};
}

// A layer profile, two masks, and everything but what is closed; "low" has noise of its own.
Routes routes() {
  const Digest layout = model().hash();
  const auto low = [](double clip, std::vector<RouteTensor> tensors) {
    return RouteBlock{"low", 0.5, clip, std::move(tensors)};
  };
  const auto rest = [](double clip, std::vector<RouteTensor> tensors) {
    return RouteBlock{"default", 2, clip, std::move(tensors)};
  };
  return {{{layout, {rest(1, {whole(5), whole(6)})}, 1.0},
           {layout,
            {low(.1, {part(0, {4, 0}, {1, 2}), part(1, {4, 0}, {1, 2}), part(2, {4, 1}, {0, 3})})},
            {}},
           {layout, {rest(.7, {part(3, {3, 0}, {2}), whole(4)})}, {}},
           {layout,
            {low(.3, {whole(0), whole(1), whole(2)}),
             rest(.4, {whole(3), whole(4), whole(5), whole(6)})},
            .45}},
          Injection::kPerStep};
}

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

// A microbatch as passes and as per-sample gradients.
template <class Real>
struct Batch {
  explicit Batch(std::size_t records, std::uint64_t seed = 1, std::size_t positions = 1,
                 double size = 1)
      : make(seed) {
    const auto dense = [&](std::size_t weight, std::optional<std::size_t> bias) {
      const auto& shape = layout.tensors()[weight].shape;
      pass.layers.push_back(DensePass<Real>{make.normal(records * positions * shape[1]),
                                            make.normal(records * positions * shape[0], size),
                                            positions, weight, bias});
    };
    pass.records = rows.records = records;
    dense(0, 1);
    dense(2, {});
    dense(3, 4);
    dense(5, 6);
    dense(7, {});
    values.resize(layout.size());
    for (std::size_t r = 0; r < records; ++r) {
      const reference::Gradient g = reference::gradient(layout, pass, r);
      for (std::size_t i = 0; i < layout.size(); ++i)
        for (const long double v : g.values[i]) values[i].push_back(static_cast<Real>(v));
    }
    for (const auto& v : values) rows.tensors.emplace_back(v);
  }
  Batch(const Batch&) = delete;

  std::vector<std::vector<long double>> gradient(std::size_t record) const {
    std::vector<std::vector<long double>> out(layout.size());
    for (std::size_t i = 0; i < layout.size(); ++i) {
      const std::size_t n = layout.elements(i);
      out[i].assign(values[i].begin() + static_cast<std::ptrdiff_t>(record * n),
                    values[i].begin() + static_cast<std::ptrdiff_t>((record + 1) * n));
    }
    return out;
  }

  ModelLayout layout = model();
  reference::Maker<Real> make;
  BackwardPass<Real> pass;
  PerSampleGradients<Real> rows;
  std::vector<std::vector<Real>> values;
};

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
  router.clip(microbatch, classes, options, 0, Norm::kL2, sum);
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
        router.clip(form, classes, {}, 0, Norm::kL2, sum);
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
  EXPECT_THROW(router.clip(batch.rows, classes, {}, 0, Norm::kL2, sum), Error);
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
  clip(layout, batch.rows, ClipStrategy::kPerSample, false, plan, {}, expected);
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
  EXPECT_THROW(router.clip(batch.rows, std::vector<std::uint32_t>{0}, {}, 0, Norm::kL2, sum),
               Error);
  EXPECT_THROW(router.clip(batch.rows, std::vector<std::uint32_t>{0, 4}, {}, 0, Norm::kL2, sum),
               Error);
  EXPECT_THROW(router.clip(batch.pass, std::vector<std::uint32_t>{0, 1}, {}, .5, Norm::kL2, sum),
               Error);
}

// ---------------------------------------------------------------- in the mechanism

Config config() {
  Config out;
  DpConfig& dp = out.privacy;
  dp.secure = false;
  dp.seed = 5;
  dp.declared_size = 1000;
  dp.effective_batch_size = 10;
  dp.adjacency = accounting::Adjacency::kZeroOut;
  dp.target_epsilon = 8;
  dp.target_steps = 20;
  out.run.compute_dtype = ComputeDtype::kFloat64;
  out.privacy = resolve(dp).config;
  return out;
}

Mechanism mechanism(const Config& plain, const Routes& routes, int threads = 1) {
  const Config c = routed_config(plain, routes, model());
  return Mechanism(c, model(), mechanism_streams(c.privacy, random::Key::from_seed(1)),
                   kernel_replay_token(c, Digest{}), threads, 1, {}, routes);
}

StepResult step(Mechanism& m, const Microbatch& microbatch,
                const std::vector<std::uint32_t>& classes) {
  return m.apply(std::span(&microbatch, 1), std::span(&classes, 1));
}

TEST(RoutedMechanism, NoiseIsThatOfThePolicyWhoeverIsInTheBatch) {
  const Batch<float> batch(6);
  const auto noise_with = [&](const std::vector<std::uint32_t>& classes) {
    Mechanism m = mechanism(config(), routes());
    const StepResult result = step(m, batch.rows, classes);
    GradientSum sum(m.layout());
    m.router()->clip(batch.rows, classes, {}, 0, Norm::kL2, sum);
    std::vector<double> noise;
    for (std::size_t k = 0; k < sum.values().size(); ++k)
      noise.push_back(result.gradients.values()[k] * 10 - sum.values()[k]);
    return noise;
  };
  // One draw, in units of the blocks' standard deviations: 10 coordinates of the same key.
  const auto nobody = noise_with(std::vector<std::uint32_t>(6, kNoRoute));
  for (const std::vector<std::uint32_t>& classes :
       {std::vector<std::uint32_t>{0, 1, 2, 3, 0, 1}, {1, 1, 1, 1, 1, 1}}) {
    const auto somebody = noise_with(classes);
    for (std::size_t k = 0; k < nobody.size(); ++k) EXPECT_NEAR(nobody[k], somebody[k], 1e-12);
  }
  // The standard deviations are those of the policy: 104 coordinates of "low", 84 of "default".
  Mechanism m = mechanism(config(), routes());
  std::vector<double> expected(nobody.size());
  GradientSum drawn(m.layout());
  const Allocation& allocation = m.allocation();
  EXPECT_EQ(allocation.plan.partition.names, (std::vector<std::string>{"low", "default"}));
  const std::vector<double> stddev{.5, 2};
  NoiseRequest request;
  request.stddev = stddev;
  generate_noise(m.layout(), allocation.plan.partition, request,
                 mechanism_streams(m.config().privacy, random::Key::from_seed(1)).noise, {}, drawn);
  for (std::size_t k = 0; k < nobody.size(); ++k) EXPECT_NEAR(nobody[k], drawn.values()[k], 1e-12);
}

TEST(RoutedMechanism, ItsEventIsNoBetterThanThatOfAnyClass) {
  Mechanism m = mechanism(config(), routes());
  const Batch<float> batch(4);
  step(m, batch.rows, {0, 1, 2, 3});
  const auto composed = m.accountant().composed();
  ASSERT_EQ(composed.size(), 1u);
  const double run = *accounting::gaussian_noise_multiplier(composed[0].event.mechanism());
  double least = 1e9;
  for (std::size_t c = 0; c < 4; ++c) {
    const double own = *accounting::gaussian_noise_multiplier(m.use_of(c));
    EXPECT_LE(run, own);
    least = std::min(least, own);
  }
  EXPECT_EQ(run, least);
  EXPECT_EQ(composed[0].event.adjacency(), accounting::Adjacency::kZeroOut);
}

TEST(RoutedMechanism, TensorsThatNoClassMayReachReceiveNeitherGradientNorNoise) {
  Mechanism m = mechanism(config(), routes());
  EXPECT_FALSE(m.layout().tensors()[7].is_private());
  const Batch<float> batch(4);
  EXPECT_TRUE(step(m, batch.rows, {3, 3, 3, 3}).gradients.tensor(7).empty());
}

TEST(RoutedMechanism, SlotsOfInjectionAddUpToThePromisedNoise) {
  // The law of the sum: n slots of s / sqrt(n) are s, whether or not a record is in a slot. 37,600
  // draws; a standard deviation 3% off would be beyond 8 of its own.
  for (const Injection injection : {Injection::kPerMicrobatch, Injection::kPerSample}) {
    Config c = config();
    c.privacy.accumulation_context.reset();
    c.privacy.gradient_accumulation_steps = 4;
    c.privacy.target_steps = 200;
    c.privacy = resolve(c.privacy).config;
    Routes several = routes();
    several.injection = injection;
    Mechanism m = mechanism(c, several);
    const Batch<float> empty(0), two(2);
    long double square[2] = {}, count[2] = {};
    for (int t = 0; t < 200; ++t) {
      const std::vector<Microbatch> batches{two.rows, empty.rows, empty.rows, two.rows};
      const std::vector<std::vector<std::uint32_t>> classes{
          {kNoRoute, kNoRoute}, {}, {}, {kNoRoute, kNoRoute}};
      const StepResult result = m.apply(batches, classes);
      for (std::size_t i = 0; i < 7; ++i)
        for (const double v : result.gradients.tensor(i)) {
          square[i < 3 ? 0 : 1] += static_cast<long double>(v) * v * 100;
          count[i < 3 ? 0 : 1] += 1;
        }
    }
    EXPECT_NEAR(static_cast<double>(std::sqrt(square[0] / count[0])), .5, .015);
    EXPECT_NEAR(static_cast<double>(std::sqrt(square[1] / count[1])), 2, .06);
  }
}

TEST(RoutedMechanism, EverySlotIsDrawnAndTheirNumberDoesNotFollowTheBatch) {
  Routes several = routes();
  several.injection = Injection::kPerSample;
  Mechanism m = mechanism(config(), several);
  const std::uint64_t slots = m.most_records();
  const Batch<float> batch(3);
  const StepResult result = step(m, batch.rows, {kNoRoute, kNoRoute, kNoRoute});
  GradientSum drawn(m.layout());
  NoiseState state;
  const double root = std::sqrt(static_cast<double>(slots));
  const std::vector<double> stddev{.05 / root, .2 / root};
  NoiseRequest request;
  request.stddev = stddev;
  for (std::uint64_t slot = 0; slot < slots; ++slot)
    state = generate_noise(m.layout(), m.allocation().plan.partition, request,
                           mechanism_streams(m.config().privacy, random::Key::from_seed(1)).noise,
                           state, drawn);
  for (std::size_t k = 0; k < drawn.values().size(); ++k)
    EXPECT_NEAR(result.gradients.values()[k], drawn.values()[k], 1e-12);
}

TEST(RoutedMechanism, DiscreteFamiliesCutRecordsToTheGridWithinTheirBounds) {
  Routes one = routes();
  one.plans = {one.plans[0], one.plans[2]};  // one block: "default"
  for (const NoiseFamily family :
       {NoiseFamily::kRoundedGaussian, NoiseFamily::kDiscreteGaussian, NoiseFamily::kSkellam}) {
    Config c = config();
    c.privacy.noise_family = family;
    c.privacy.noise_discrete = 0x1p-10;
    c.privacy.accountant = AccountantKind::kRdp;
    Mechanism m = mechanism(c, one);
    const Batch<float> batch(5);
    const StepResult result = step(m, batch.rows, {0, 1, kNoRoute, 0, 1});
    for (const double v : result.gradients.values())
      EXPECT_EQ(v * 10 * 1024, std::round(v * 10 * 1024)) << "a sum of grid steps";
    for (std::size_t k = 0; k < 2; ++k) {
      const accounting::Event use(m.use_of(k), accounting::NoSampling{},
                                  accounting::Adjacency::kZeroOut);
      EXPECT_EQ(accounting::name(use.mechanism()),
                accounting::name(m.accountant().composed()[0].event.mechanism()));
    }
  }
}

TEST(RoutedMechanism, GoesOnFromASavedStateOfTheSameRoutesOnly) {
  Mechanism m = mechanism(config(), routes());
  const Batch<float> batch(4);
  step(m, batch.rows, {0, 1, 2, 3});
  const Bytes saved = m.save();
  const StepResult next = step(m, batch.rows, {0, 1, 2, 3});
  Mechanism same = mechanism(config(), routes());
  same.restore(saved);
  const StepResult again = step(same, batch.rows, {0, 1, 2, 3});
  EXPECT_TRUE(std::ranges::equal(next.gradients.values(), again.gradients.values()));
  Routes others = routes();
  others.plans[0].blocks[0].clip = .9;
  others.plans[0].flat_clip = .9;
  Mechanism other = mechanism(config(), others);
  EXPECT_THROW(other.restore(saved), Error);
}

TEST(RoutedMechanism, RefusesWhatWouldTakeBoundsOrNoiseFromElsewhere) {
  const auto refused = [](const std::function<void(DpConfig&)>& change) {
    Config c = config();
    change(c.privacy);
    try {
      mechanism(c, routes());
    } catch (const Error& error) {
      return error.sentence();
    }
    return std::string("accepted");
  };
  const auto says = [&](const std::function<void(DpConfig&)>& change, const char* key) {
    const std::string sentence = refused(change);
    EXPECT_EQ(sentence.rfind(key, 0), 0u) << sentence;
  };
  says([](DpConfig& c) { c.adjacency = accounting::Adjacency::kAddRemove; }, "adjacency");
  says([](DpConfig& c) { c.clip_norm_adaptive = true; }, "clipping.norm");
  says([](DpConfig& c) { c.mode = ScheduleMode::kBudgetAdaptive; }, "mode");
  says([](DpConfig& c) { c.compression = Compression::kSparseDp; }, "noise.compression");
  says([](DpConfig& c) { c.metrics_release = MetricsRelease::kDp; }, "metrics.release");
  says([](DpConfig& c) { c.privacy_allocation = AllocationMode::kLayerWise; },
       "privacy_allocation");
  says([](DpConfig& c) { c.enabled = false; }, "enabled");
  // Neither classes without routes nor routes without classes.
  Mechanism m = mechanism(config(), routes());
  const Batch<float> batch(2);
  EXPECT_THROW(m.accumulate(batch.rows), Error);
  Config plain = config();
  Mechanism unrouted(plain, model(), mechanism_streams(plain.privacy, random::Key::from_seed(1)),
                     Digest{});
  const std::vector<std::uint32_t> classes{0, 0};
  EXPECT_THROW(unrouted.accumulate(batch.rows, false, classes), Error);
}

TEST(RoutedMechanism, SumsInSmallerRunsWhereAStrictClassWouldLoseItsBoundToRounding) {
  Config c = config();
  c.privacy.clip_ghost = true;
  // Class 0 gets wide bounds and the block as much more noise; the others stay strict.
  const auto widened = [](double factor) {
    Routes out = routes();
    for (RoutePlan& plan : out.plans)
      for (RouteBlock& block : plan.blocks)
        if (block.name == "default") block.stddev *= factor;
    out.plans[0].blocks[0].clip = *(out.plans[0].flat_clip = factor);
    return out;
  };
  const double narrow = mechanism(c, widened(1)).router()->theta(2);
  EXPECT_GT(narrow, 1e-4);
  const double wide = mechanism(c, widened(1000)).router()->theta(2);
  EXPECT_LE(wide, 1. / 64);  // and not 1000 times as much
  EXPECT_THROW(mechanism(c, widened(1e12)), Error);
}

// Half of the records reach everything, half the upper layer, or two of four heads of every layer.
Routes half_restricted(const ModelLayout& layout, bool heads) {
  RoutePlan all{layout.hash(), {{"default", 1, 1, {}}}, {}}, some = all;
  for (std::uint64_t i = 0; i < layout.size(); ++i) {
    all.blocks[0].tensors.push_back({i, {}});
    if (heads) some.blocks[0].tensors.push_back({i, {{Slices{4, 0}, {1, 2}}}});
  }
  if (!heads) some.blocks[0].tensors.push_back({layout.size() - 1, {}});
  return {{all, some}, Injection::kPerStep};
}

// Processor time, the least of twelve steps of each that take turns; up to six attempts, because
// other programs share the caches. The benchmark `route` has the ratio with its interval.
TEST(RoutedMechanism, AddsLessThanFivePercentToAStepOf256Records) {
  constexpr std::size_t kRecords = 256, kWidth = 384;
  std::vector<Tensor> tensors;
  for (const char* name : {"a", "b", "c", "d"})
    tensors.push_back({.name = name, .shape = {kWidth, kWidth}, .heads = Slices{4, 0}});
  const ModelLayout layout(std::move(tensors));
  Config c = config();
  c.privacy.declared_size = 60'000;
  c.privacy.effective_batch_size = kRecords;
  c.privacy.target_epsilon = 30;
  c.privacy.target_steps = 1000;
  c.privacy.accountant = AccountantKind::kRdp;
  c.privacy.sampling_rate.reset();
  c.privacy.clip_ghost = true;
  c.privacy = resolve(c.privacy).config;
  reference::Maker<float> make(1);
  BackwardPass<float> pass{kRecords, {}};
  for (std::size_t i = 0; i < layout.size(); ++i)
    pass.layers.push_back(
        DensePass<float>{make.normal(kRecords * kWidth), make.normal(kRecords * kWidth), 1, i, {}});
  const Microbatch microbatch = pass;
  std::vector<std::uint32_t> classes;
  for (std::uint32_t i = 0; i < kRecords; ++i) classes.push_back(i % 2);
  const auto made = [&](std::optional<Routes> with) {
    return Mechanism(c, layout, mechanism_streams(c.privacy, random::Key::from_seed(1)), Digest{},
                     1, 1, {}, std::move(with));
  };
  for (const bool heads : {false, true}) {
    Mechanism plain = made(std::nullopt), with = made(half_restricted(layout, heads));
    double ratio = 2;
    for (int attempt = 0; attempt < 6 && ratio > 1.05; ++attempt) {
      std::clock_t least[2] = {std::numeric_limits<std::clock_t>::max(),
                               std::numeric_limits<std::clock_t>::max()};
      for (int turn = 0; turn < 24; ++turn) {
        const std::clock_t begin = std::clock();
        if (turn % 2 == 0)
          plain.apply(std::span(&microbatch, 1));
        else
          step(with, microbatch, classes);
        least[turn % 2] = std::min(least[turn % 2], std::clock() - begin);
      }
      ratio = static_cast<double>(least[1]) / static_cast<double>(least[0]);
    }
    EXPECT_LE(ratio, 1.05) << (heads ? "masks of heads" : "profiles of layers");
  }
}

}  // namespace
}  // namespace discreet::mechanism
