#include "discreet/mechanism/clip/adaptive_clip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "discreet/accounting/accountant.h"
#include "discreet/base/error_testing.h"

namespace discreet::mechanism {
namespace {

AdaptiveClipOptions options_of(double batch, double deviation) {
  AdaptiveClipOptions options;
  options.batch = batch;
  options.deviation = deviation;
  return options;
}

RecordNorms norms_of(std::size_t parts, std::vector<double> norms) {
  RecordNorms out;
  out.parts = parts;
  out.records = norms.size() / parts;
  out.norms = std::move(norms);
  out.zeroed.assign(out.records, 0);
  return out;
}

AdaptiveClipState state_of(std::vector<double> median, std::vector<double> mad) {
  AdaptiveClipState state;
  state.median = std::move(median);
  state.mad = std::move(mad);
  return state;
}

double median_of(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

TEST(AdaptiveClip, ApproachesMedianPlusMadOfTheNormsThroughTheNoise) {
  // Log-normal norms of two parts; Poisson batches of 500 on average, noise of 10 on each count.
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  const auto norm = [&](int part) {
    return part == 0 ? 3 * std::exp(0.5 * normal(random)) : 0.02 * std::exp(normal(random));
  };
  std::vector<double> target;
  for (int part = 0; part < 2; ++part) {
    std::vector<double> sample(100001);
    for (double& x : sample) x = norm(part);
    const double median = median_of(sample);
    for (double& x : sample) x = std::abs(x - median);
    target.push_back(median + 2 * median_of(sample));
  }
  AdaptiveClipOptions options = options_of(500, 10);
  options.spread = 2;
  const std::vector<double> start = {100, 100};
  AdaptiveClipState state = initial_state(start, options);
  EXPECT_NEAR(clip_norms(state, options)[0], 100, 1e-9);
  std::binomial_distribution<int> size(50000, 0.01);
  std::vector<double> mean(2);
  for (int step = 0; step < 600; ++step) {
    std::vector<double> norms;
    for (int i = size(random); i > 0; --i) {
      norms.push_back(norm(0));
      norms.push_back(norm(1));
    }
    std::vector<double> noise(4);
    for (double& z : noise) z = normal(random);
    state = adapt_clip_norms(state, count_norms(state, norms_of(2, norms)), options, noise);
    if (step >= 300)
      for (int part = 0; part < 2; ++part) mean[part] += clip_norms(state, options)[part] / 300;
  }
  EXPECT_EQ(state.updates, 600u);
  EXPECT_FALSE(state.not_private);
  for (int part = 0; part < 2; ++part) EXPECT_NEAR(mean[part] / target[part], 1, 0.05) << part;
}

TEST(AdaptiveClip, CountsAreCentredAndAZeroedRecordContributesNothing) {
  const AdaptiveClipState state = state_of({2}, {0.5});
  RecordNorms norms = norms_of(1, {1, 2, 2.4, 9});
  EXPECT_EQ(count_norms(state, norms).below, (std::vector<double>{0}));   // 2 below, 2 above
  EXPECT_EQ(count_norms(state, norms).within, (std::vector<double>{0}));  // 2 and 2.4 within
  norms.zeroed[3] = 1;
  EXPECT_EQ(count_norms(state, norms).below, (std::vector<double>{0.5}));
  EXPECT_EQ(count_norms(state, norms).within, (std::vector<double>{0.5}));
  norms.norms[3] = 0;  // what a zeroed record's norm is written as: it is not "below"
  EXPECT_EQ(count_norms(state, norms).below, (std::vector<double>{0.5}));
}

TEST(AdaptiveClip, OneRecordMovesEachCountByHalfAtMost) {
  std::mt19937_64 random(2);
  const AdaptiveClipState state = state_of({1, 5}, {0.3, 4});
  for (int trial = 0; trial < 1000; ++trial) {
    std::vector<double> norms(14);
    for (double& x : norms) x = static_cast<double>(random() % 1000) / 100;
    RecordNorms with = norms_of(2, norms), zeroed = with;
    zeroed.zeroed[3] = 1;
    norms.erase(norms.begin() + 6, norms.begin() + 8);
    const NormCounts a = count_norms(state, with), b = count_norms(state, norms_of(2, norms));
    EXPECT_EQ(b, count_norms(state, zeroed)) << "absent and zeroed are the same";
    for (std::size_t g = 0; g < 2; ++g) {
      ASSERT_EQ(std::abs(a.below[g] - b.below[g]), 0.5);
      ASSERT_EQ(std::abs(a.within[g] - b.within[g]), 0.5);
    }
  }
}

TEST(AdaptiveClip, UpdateIsTheGeometricRuleOfTheHeader) {
  const AdaptiveClipOptions options = options_of(100, 4);
  const std::vector<double> noise = {1.5, -0.5};
  const auto next = adapt_clip_norms(state_of({2}, {0.5}), {{-10}, {20}}, options, noise);
  EXPECT_NEAR(next.median[0], 2 * std::exp(-0.2 * (-10 + 6) / 100), 1e-14);
  EXPECT_NEAR(next.mad[0], 0.5 * std::exp(-0.2 * (20 - 2) / 100), 1e-14);
  EXPECT_NEAR(clip_norms(next, options)[0], next.median[0] + next.mad[0], 1e-15);
}

TEST(AdaptiveClip, StaysInsideItsBoundsWhateverTheNoise) {
  AdaptiveClipOptions options = options_of(1, 1e6);
  options.lower = 0.5;
  options.upper = 8;
  AdaptiveClipState state = initial_state(std::vector<double>{1e9}, options);
  EXPECT_EQ(clip_norms(state, options)[0], 8);
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  double least = 1e9, largest = 0;
  for (int step = 0; step < 2000; ++step) {
    const std::vector<double> noise = {normal(random), normal(random)};
    state = adapt_clip_norms(state, {{0}, {0}}, options, noise);
    const double clip = clip_norms(state, options)[0];
    least = std::min(least, clip);
    largest = std::max(largest, clip);
  }
  EXPECT_GE(least, 0.5);
  EXPECT_LE(largest, 8);
}

TEST(AdaptiveClip, AnEmptyBatchStillMovesByTheNoiseOnly) {
  const AdaptiveClipOptions options = options_of(100, 4);
  const AdaptiveClipState state = state_of({2}, {0.5});
  const NormCounts none = count_norms(state, norms_of(1, {}));
  const std::vector<double> quiet = {0, 0};
  EXPECT_EQ(adapt_clip_norms(state, none, options, quiet).median, state.median);
}

TEST(AdaptiveClip, MicrobatchesAndRanksAddUpToTheBatchInAnyOrder) {
  const AdaptiveClipState state = state_of({1, 2}, {0.5, 1});
  std::mt19937_64 random(8);
  std::vector<double> norms(80);
  for (double& x : norms) x = static_cast<double>(random() % 400) / 100;
  const NormCounts whole = count_norms(state, norms_of(2, norms));
  NormCounts sum = count_norms(state, norms_of(2, {norms.begin() + 50, norms.end()}));
  sum.add(count_norms(state, norms_of(2, {norms.begin(), norms.begin() + 50})));
  EXPECT_EQ(sum, whole);
  EXPECT_THROW(sum.add(NormCounts{{1}, {1}}), Error);
}

TEST(AdaptiveClip, ConservativeAccountsTwoCentredCountsPerPart) {
  // sigma = sigma_b = 1, q = .01, 1000 steps, delta = 1e-5: 1.828 without, 2.97 with; 8.40 if the
  // counts were not centred (sensitivity 1 each).
  const AdaptiveClipOptions options = options_of(600, 1);
  const auto extra = adaptation(options, 1);
  ASSERT_TRUE(extra.has_value());
  EXPECT_EQ(extra->counts, 2u);
  EXPECT_EQ(adaptation(options, 5)->counts, 10u);
  accounting::GaussianGroups groups{{{1, 1}}, std::nullopt, extra};
  EXPECT_NEAR(accounting::effective_noise_multiplier(groups), 1 / std::sqrt(1.5), 1e-12);
  const accounting::Event event(groups, accounting::Poisson{0.01},
                                accounting::Adjacency::kAddRemove);
  const auto accountant = accounting::make_accountant("pld");
  accountant->compose(event, 1000);
  EXPECT_NEAR(accountant->epsilon(1e-5).epsilon.upper, 2.97, 0.005);
  const auto uncentred = accounting::make_accountant("pld");
  uncentred->compose(
      accounting::Event(accounting::Gaussian{1 / std::sqrt(3.0)}, accounting::Poisson{0.01},
                        accounting::Adjacency::kAddRemove),
      1000);
  EXPECT_NEAR(uncentred->epsilon(1e-5).epsilon.upper, 8.40, 0.01);
  const double cost = adaptation_cost(event, 1000, 1e-5, "pld");
  EXPECT_NEAR(cost, 2.97 - 1.828, 0.01);
  groups.adaptation.reset();
  EXPECT_EQ(adaptation_cost(accounting::Event(groups, accounting::Poisson{0.01},
                                              accounting::Adjacency::kAddRemove),
                            1000, 1e-5, "pld"),
            0);
}

TEST(AdaptiveClip, HeuristicIsRefusedUnlessAllowedNeverWhenRegulatedAndStampsTheState) {
  AdaptiveClipOptions options = options_of(100, 1);
  options.accounting = AdaptiveAccounting::kHeuristic;
  const AdaptiveClipState state = state_of({2}, {0.5});
  const NormCounts counts{{10}, {-10}};
  const auto adapt = [&] { return adapt_clip_norms(state, counts, options, {}); };
  EXPECT_EQ(code_of([&] { adapt(); }), ErrorCode::kInvalidDpConfig);
  options.allow_nonprivate = true;
  const AdaptiveClipState next = adapt();
  EXPECT_TRUE(next.not_private);
  EXPECT_NE(next.median, state.median);
  EXPECT_FALSE(adaptation(options, 1).has_value());
  EXPECT_EQ(code_of([&] { norm_history(next, options); }), ErrorCode::kInvalidDpConfig);
  // The stamp stays when later updates are noised.
  options.accounting = AdaptiveAccounting::kConservative;
  const std::vector<double> noise = {0, 0};
  EXPECT_TRUE(adapt_clip_norms(next, counts, options, noise).not_private);
  options.accounting = AdaptiveAccounting::kHeuristic;
  options.regulated = true;
  EXPECT_EQ(code_of([&] { adapt(); }), ErrorCode::kInvalidDpConfig);
}

TEST(AdaptiveClip, StateRoundTripsThroughCanonicalBytesAndOtherBytesAreRefused) {
  AdaptiveClipState state = state_of({0.1, 3}, {1e-5, 2});
  state.updates = 17;
  const Bytes bytes = state.encode();
  EXPECT_EQ(AdaptiveClipState::decode(bytes), state);
  EXPECT_EQ(AdaptiveClipState::decode(bytes).encode(), bytes);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    const ByteView part(bytes.data(), cut);
    EXPECT_EQ(code_of([&] { AdaptiveClipState::decode(part); }), ErrorCode::kMalformed);
  }
  for (AdaptiveClipState bad : {state_of({1}, {}), state_of({-1}, {1}), state_of({1}, {HUGE_VAL})})
    EXPECT_EQ(code_of([&] { AdaptiveClipState::decode(bad.encode()); }), ErrorCode::kMalformed);
}

TEST(AdaptiveClip, RefusesBadOptionsAndWrongNoiseAndLeavesTheStateAlone) {
  const AdaptiveClipState state = state_of({2}, {0.5});
  const NormCounts counts{{0}, {0}};
  const std::vector<double> two = {0, 0}, one = {0}, bad = {0, std::nan("")};
  const AdaptiveClipOptions good = options_of(100, 1);
  EXPECT_EQ(code_of([&] { adapt_clip_norms(state, counts, good, one); }), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of([&] { adapt_clip_norms(state, counts, good, {}); }), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of([&] { adapt_clip_norms(state, counts, good, bad); }), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of([&] { count_norms(state, norms_of(2, {1, 1})); }), ErrorCode::kInvalidInput);
  const auto refused = [&](auto change) {
    AdaptiveClipOptions options = good;
    change(options);
    return code_of([&] { adapt_clip_norms(state, counts, options, two); }) ==
           ErrorCode::kInvalidDpConfig;
  };
  const double nan = std::nan("");
  EXPECT_TRUE(refused([](auto& o) { o.batch = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.deviation = 0; }));
  EXPECT_TRUE(refused([&](auto& o) { o.deviation = nan; }));
  EXPECT_TRUE(refused([](auto& o) { o.lower = -1; }));
  EXPECT_TRUE(refused([](auto& o) { o.lower = 2e3; }));
  EXPECT_TRUE(refused([](auto& o) { o.upper = HUGE_VAL; }));
  EXPECT_TRUE(refused([&](auto& o) { o.spread = nan; }));
  EXPECT_TRUE(refused([](auto& o) { o.learning_rate = 0; }));
  EXPECT_FALSE(refused([](auto&) {}));
}

TEST(AdaptiveClip, TakesItsOptionsFromTheConfiguration) {
  DpConfig config;
  EXPECT_EQ(code_of([&] { adaptive_clip_options(config); }), ErrorCode::kInvalidDpConfig);
  config.effective_batch_size = 256;
  config.adaptive_noise = 12;
  const AdaptiveClipOptions options = adaptive_clip_options(config);
  EXPECT_EQ(options.batch, 256);
  EXPECT_EQ(options.deviation, 12);
  EXPECT_EQ(options.lower, 1e-3);
  config.adaptive_accounting = AdaptiveAccounting::kHeuristic;
  EXPECT_EQ(code_of([&] { adaptive_clip_options(config); }), ErrorCode::kInvalidDpConfig);
}

}  // namespace
}  // namespace discreet::mechanism
