// Routes in the mechanism.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <limits>

#include "discreet/base/error.h"
#include "discreet/mechanism/route/route_testing.h"
#include "discreet/mechanism/step/apply_testing.h"

namespace discreet::mechanism {
namespace {

using namespace route_example;

Config config() {
  Config out = public_run(1000, 10);
  out.privacy.seed = 5;
  out.privacy.adjacency = accounting::Adjacency::kZeroOut;
  out.privacy.target_steps = 20;
  return resolved(out);
}

Mechanism mechanism(const Config& plain, const Routes& routes) {
  return mechanism_of(routed_config(plain, routes, model()), model(), 1, 1, {}, routes);
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
    m.router()->clip(batch.rows, classes, {}, {}, sum);
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
  Mechanism unrouted = mechanism_of(config(), model());
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
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the times of an instrumented build say nothing about the released one";
#endif
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
    return mechanism_of(c, layout, 1, 1, {}, std::move(with));
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
