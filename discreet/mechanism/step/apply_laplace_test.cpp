#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "discreet/base/error.h"
#include "discreet/mechanism/step/apply_testing.h"

namespace discreet::mechanism {
namespace {

ModelLayout model() {
  return ModelLayout({{.name = "low", .shape = {400}},
                      {.name = "high", .shape = {50, 12}, .heads = Slices{5, 0}}});
}

Config config() {
  Config out = public_run(1000, 10);
  DpConfig& dp = out.privacy;
  dp.seed = 3;
  dp.adjacency = accounting::Adjacency::kZeroOut;
  dp.target_epsilon = 30;
  dp.target_steps = 200;
  dp.noise_multiplier = 2;
  dp.clip_norm = 0.5;
  dp.noise_family = NoiseFamily::kLaplace;
  dp.accountant = AccountantKind::kRdp;
  return out;
}

Mechanism mechanism(Config c, std::optional<Routes> routes = {}) {
  c = resolved(std::move(c));
  if (routes) c = routed_config(std::move(c), *routes, model());
  return mechanism_of(c, model(), 1, 1, {}, std::move(routes));
}

struct Batch {
  std::vector<std::vector<double>> values{2};
  PerSampleGradients<double> view;
  explicit Batch(std::size_t records) {
    std::mt19937_64 random(9);
    std::normal_distribution<double> normal;
    view.records = records;
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t k = 0; k < records * model().elements(i); ++k)
        values[i].push_back(normal(random));
      view.tensors.emplace_back(values[i]);
    }
  }
  Batch(const Batch&) = delete;
};

long double l1(std::span<const double> values) {
  long double total = 0;
  for (const double v : values) total += std::fabs(static_cast<long double>(v));
  return total;
}

TEST(ApplyLaplace, IsAccountedAsLaplaceNoiseOnTheL1Bound) {
  Mechanism m = mechanism(config());
  const Batch batch(8);
  const Microbatch one = batch.view;
  m.apply(std::span(&one, 1));
  const auto composed = m.accountant().composed();
  ASSERT_EQ(composed.size(), 1u);
  const auto* event = std::get_if<accounting::Laplace>(&composed[0].event.mechanism());
  ASSERT_NE(event, nullptr);
  EXPECT_LE(event->scale, 2 / std::numbers::sqrt2);
  EXPECT_GE(event->scale, 2 / std::numbers::sqrt2 * (1 - 1e-9));
}

TEST(ApplyLaplace, DrawsLaplaceNoiseOfTheStatedDeviationOnClippedSums) {
  // 200 steps on empty batches: 200,000 draws of standard deviation 2 * .5 / 10 and kurtosis 6. The
  // deviation of the estimated deviation is 0.25%, that of the kurtosis (a Gaussian's is 3) about
  // 0.1: a false alarm is beyond 8 of either.
  Mechanism m = mechanism(config());
  const Batch none(0);
  const Microbatch empty = none.view;
  long double square = 0, fourth = 0, count = 0;
  for (int t = 0; t < 200; ++t) {
    const StepResult result = m.apply(std::span(&empty, 1));
    for (const double v : result.gradients.values()) {
      const long double s = static_cast<long double>(v) * v;
      square += s, fourth += s * s, ++count;
    }
  }
  const long double variance = square / count;
  EXPECT_NEAR(static_cast<double>(std::sqrt(variance)), .1, .002);
  EXPECT_NEAR(static_cast<double>(fourth / count / variance / variance), 6, 1);

  // What a batch adds to the same noise has L1 norm at most C a record.
  Mechanism with = mechanism(config()), without = mechanism(config());
  const Batch batch(8);
  const Microbatch one = batch.view;
  const StepResult a = with.apply(std::span(&one, 1)), b = without.apply(std::span(&empty, 1));
  std::vector<double> added;
  for (std::size_t k = 0; k < a.gradients.values().size(); ++k)
    added.push_back(10 * (a.gradients.values()[k] - b.gradients.values()[k]));
  EXPECT_LE(l1(added), 8 * .5 + 1e-9);
  EXPECT_GT(l1(added), .5);
}

Routes routes() {
  const auto block = [](double clip, std::vector<RouteTensor> tensors) {
    return RouteBlock{"default", 2, clip, std::move(tensors)};
  };
  return {{{model().hash(), {block(1, {{0, {}}, {1, {}}})}, 1.0},
           {model().hash(), {block(.25, {{1, {{{5, 0}, {1, 3}}}}})}, {}}},
          Injection::kPerStep};
}

TEST(ApplyLaplace, RoutedRecordsKeepTheirOwnL1BoundOverTheirOwnProfile) {
  Mechanism m = mechanism(config(), routes());
  for (const std::uint32_t c : {0u, 1u}) {
    const Batch batch(1);
    GradientSum sum(m.layout());
    const std::vector<std::uint32_t> classes{c};
    m.router()->clip(batch.view, classes, {.norm = Norm::kL1}, {}, sum);
    EXPECT_LE(l1(sum.values()), c == 0 ? 1 : .25);
    EXPECT_GE(l1(sum.values()), (c == 0 ? 1 : .25) * (1 - 1e-6));
    if (c == 0) continue;
    EXPECT_EQ(l1(sum.tensor(0)), 0);
    for (std::size_t row = 0; row < 50; ++row)
      if (row / 10 != 1 && row / 10 != 3) {
        EXPECT_EQ(l1(sum.tensor(1).subspan(row * 12, 12)), 0) << row;
      }
  }
  const auto use = std::get<accounting::Laplace>(m.use_of(1));
  EXPECT_NEAR(use.scale, 8 / std::numbers::sqrt2, 1e-6);
  const Batch batch(4);
  const Microbatch one = batch.view;
  const std::vector<std::uint32_t> classes{0, 1, kNoRoute, 1};
  m.apply(std::span(&one, 1), std::span(&classes, 1));
  const auto run = std::get<accounting::Laplace>(m.accountant().composed()[0].event.mechanism());
  EXPECT_NEAR(run.scale, 2 / std::numbers::sqrt2, 1e-6);
  EXPECT_LE(run.scale, use.scale);
}

TEST(ApplyLaplace, RefusesWhatItsAccountDoesNotCover) {
  const auto refusal = [](auto change) -> std::string {
    Config c = config();
    change(c.privacy);
    try {
      mechanism(c);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
      return error.sentence();
    }
    return "accepted";
  };
  const auto says = [](const std::string& sentence, const char* what) {
    EXPECT_NE(sentence.find(what), std::string::npos) << sentence;
  };
  says(refusal([](DpConfig& c) { c.clip_ghost = true; }), "L1");
  says(refusal([](DpConfig& c) { c.accountant = AccountantKind::kPld; }), "accountant is pld");
  says(refusal([](DpConfig& c) { c.clip_strategy = ClipStrategy::kPerTensor; }), "one clip bound");
  says(refusal([](DpConfig& c) { c.metrics_release = MetricsRelease::kDp; }), "one clip bound");
  says(refusal([](DpConfig& c) { c.noise_discrete = 0.5; }), "has no grid");

  Mechanism m = mechanism(config());
  const Microbatch pass = BackwardPass<float>{};
  EXPECT_THROW(m.apply(std::span(&pass, 1)), Error);
  Routes two = routes();
  two.plans[1].blocks[0].name = "other";
  two.plans[0].blocks[0].tensors.pop_back();
  EXPECT_THROW(mechanism(config(), two), Error);
}

}  // namespace
}  // namespace discreet::mechanism
