// The equivalence procedure of the specification's VIII.C: two implementations of the same
// operators, 10 seeds for every scenario.
//
//   E0  clipping scales, sigma schedule, accountant outputs and trace fields equal in every bit
//   E1  metrics equal within declared tolerances
//   E2  noisy gradients equal in distribution: two-sample Kolmogorov-Smirnov test at alpha = 0.01
//
// What is compared:
//   one thread and four; a run that was saved and restored and one that was not    E0
//   fused and two-sweep clipping of backward passes                                E0
//   fused clipping and clipping of explicit rows, whose norms are rounded otherwise  E1, E2
//
// False alarms: seeds are fixed, so that a test always passes or always fails. With new seeds, each
// E2 comparison would reject equal distributions with probability 0.01; there are two.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "discreet/accounting/pld.h"
#include "discreet/mechanism/clip/clip_plan.h"
#include "tests/conformance/small_run.h"

namespace discreet::conformance {
namespace {

constexpr std::uint64_t kSeeds = 10;
constexpr int kSteps = 4;

// ---------------------------------------------------------------- a trajectory

struct Trajectory {
  std::vector<StepResult> steps;
  std::vector<std::vector<double>> clip_norms;   // of each step, by part
  std::vector<std::vector<double>> multipliers;  // the allocation map
  std::optional<FailureRecord> failure;
  Bytes state;
};

struct Way {  // how a run is carried out
  int threads = 1;
  Form form = Form::kRows;
  std::optional<int> restored_before = {};  // a fresh process continues from this step
};

Trajectory follow(Config config, std::uint64_t seed, const Way& way, int steps = kSteps) {
  config.privacy.seed = seed;
  Trajectory out;
  std::optional<Mechanism> current(start(config, way.threads));
  for (int t = 0; t < steps; ++t) {
    if (way.restored_before == t) {
      const Bytes saved = current->save();
      current.emplace(start(config, way.threads));
      current->restore(saved);
    }
    Mechanism& m = *current;
    out.clip_norms.push_back(m.allocation().plan.clip);
    out.multipliers.push_back(m.allocation().multiplier);
    try {
      out.steps.push_back(small_step(m, seed, way.form));
    } catch (const Error& error) {
      out.failure = m.emit_error(error);
      break;
    }
  }
  out.state = current->save();
  return out;
}

// The fields of a step's trace line. The replay token names the configuration; where two are
// compared that differ in it, it is left out.
cbor::Value fields(const StepResult& step, bool with_token) {
  std::vector<cbor::Entry> entries = trace_iter(step).as_map();
  if (!with_token)
    std::erase_if(entries, [](const cbor::Entry& entry) { return entry.key == "dp_replay_t"; });
  return cbor::map(std::move(entries));
}

void expect_e0(const Trajectory& a, const Trajectory& b, bool same_config = true) {
  EXPECT_EQ(a.clip_norms, b.clip_norms);
  EXPECT_EQ(a.multipliers, b.multipliers);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t t = 0; t < a.steps.size(); ++t) {
    const StepResult &x = a.steps[t], &y = b.steps[t];
    // Epsilon, sigma and its effective multipliers, clip statistics, projection: all are fields.
    EXPECT_EQ(cbor::encode(fields(x, same_config)), cbor::encode(fields(y, same_config)));
    EXPECT_EQ(x.budget.after.lower, y.budget.after.lower);
    EXPECT_TRUE(std::ranges::equal(x.gradients.values(), y.gradients.values()));
    EXPECT_EQ(x.warnings, y.warnings);
  }
  ASSERT_EQ(a.failure.has_value(), b.failure.has_value());
  if (!same_config) return;
  if (a.failure) {
    EXPECT_EQ(cbor::encode(a.failure->to_cbor()), cbor::encode(b.failure->to_cbor()));
  }
  EXPECT_EQ(a.state, b.state);
}

std::vector<Scenario> scenarios() {
  return {{"per_sample", [](DpConfig&) {}},
          {"per_group", [](DpConfig& dp) { dp.clip_strategy = ClipStrategy::kPerGroup; }},
          {"per_tensor",
           [](DpConfig& dp) {
             dp.clip_strategy = ClipStrategy::kPerTensor;
             dp.privacy_allocation = AllocationMode::kLayerWise;
           }},
          {"hybrid", [](DpConfig& dp) { dp.clip_strategy = ClipStrategy::kHybrid; }},
          {"adaptive", [](DpConfig& dp) { dp.clip_strategy = ClipStrategy::kAdaptive; }},
          {"accumulation", [](DpConfig& dp) { dp.gradient_accumulation_steps = 3; }},
          {"dynamic_projection",
           [](DpConfig& dp) {
             dp.mode = ScheduleMode::kDynamicProjection;
             dp.target_epsilon = 2;
             dp.accountant = AccountantKind::kRdp;
           }},
          {"topk_dp",
           [](DpConfig& dp) {
             dp.compression = Compression::kTopkDp;
             dp.compression_keep = 0.5;
           }},
          {"fused",
           [](DpConfig& dp) {
             dp.clip_strategy = ClipStrategy::kPerLayer;
             dp.fused_kernel = true;
           },
           Form::kPasses},
          {"noise_seed_per_step", [](DpConfig& dp) { dp.noise_seed_per_step = true; }}};
}

// ---------------------------------------------------------------- E0

TEST(EquivalenceE0, OfOneThreadAndFour) {
  for (const Scenario& scenario : scenarios())
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(testing::Message() << scenario.name << ", seed " << seed);
      expect_e0(follow(scenario.config(), seed, {1, scenario.form}),
                follow(scenario.config(), seed, {4, scenario.form}));
    }
}

TEST(EquivalenceE0, OfAResumedRunAndOneThatWasNotInterrupted) {
  for (const Scenario& scenario : scenarios())
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(testing::Message() << scenario.name << ", seed " << seed);
      expect_e0(follow(scenario.config(), seed, {1, scenario.form}),
                follow(scenario.config(), seed, {1, scenario.form, 2}));
    }
}

Config passes_config(bool fused) {
  Config config = small_config();
  config.privacy.clip_strategy = ClipStrategy::kPerLayer;
  config.privacy.clip_ghost = true;
  config.privacy.fused_kernel = fused;
  return config;
}

TEST(EquivalenceE0, OfFusedAndTwoSweepClipping) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    expect_e0(follow(passes_config(true), seed, {1, Form::kPasses}),
              follow(passes_config(false), seed, {1, Form::kPasses}), false);
    // The scales themselves.
    const SmallBatch batch(seed, 0);
    const Microbatch passes = batch.part(Form::kPasses, 0, kRecords);
    const ClipPlan plan = clip_plan(small_model(), Cut::kLayer, 0.5);
    GradientSum a(small_model()), b(small_model());
    const RecordNorms fused =
        clip(small_model(), passes, {ClipStrategy::kPerLayer, true}, plan, {}, a);
    const RecordNorms swept =
        clip(small_model(), passes, {ClipStrategy::kPerLayer, false}, plan, {}, b);
    EXPECT_EQ(fused.norms, swept.norms);
    EXPECT_EQ(fused.scales, swept.scales);
    EXPECT_TRUE(std::ranges::equal(a.values(), b.values()));
  }
}

// ---------------------------------------------------------------- E1

// The tolerances that are declared: passes charge the rounding of their sums (ghost.h), less than
// one per cent of sigma here, to which an epsilon this small answers with less than five, and round
// norms up by less than 1e-12.
constexpr double kSigmaTolerance = 0.01;
constexpr double kEpsilonTolerance = 0.05;
constexpr double kMetricTolerance = 1e-6;

void expect_near_relative(double a, double b, double tolerance) {
  EXPECT_LE(std::fabs(a - b), tolerance * std::max(std::fabs(a), std::fabs(b)));
}

Config rows_config() {
  Config config = passes_config(false);
  config.privacy.clip_ghost = false;
  return config;
}

TEST(EquivalenceE1, OfFusedClippingAndExplicitRows) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const Trajectory fused = follow(passes_config(true), seed, {1, Form::kPasses});
    const Trajectory rows = follow(rows_config(), seed, {1, Form::kRows});
    ASSERT_EQ(fused.steps.size(), rows.steps.size());
    EXPECT_EQ(fused.clip_norms, rows.clip_norms);
    EXPECT_EQ(fused.multipliers, rows.multipliers);
    for (std::size_t t = 0; t < rows.steps.size(); ++t) {
      const DpMetrics &a = fused.steps[t].metrics, &b = rows.steps[t].metrics;
      EXPECT_EQ(a.noise_scale_sigma, b.noise_scale_sigma);
      EXPECT_EQ(a.clip_fraction, b.clip_fraction);
      EXPECT_EQ(a.group_clip_fraction, b.group_clip_fraction);
      expect_near_relative(a.norm_p50, b.norm_p50, kMetricTolerance);
      expect_near_relative(a.norm_max, b.norm_max, kMetricTolerance);
      expect_near_relative(a.gradient_snr, b.gradient_snr, kMetricTolerance);
      expect_near_relative(a.effective_noise_multiplier, b.effective_noise_multiplier,
                           kSigmaTolerance);
      expect_near_relative(a.cumulative_epsilon, b.cumulative_epsilon, kEpsilonTolerance);
      expect_near_relative(*a.projected_final_epsilon, *b.projected_final_epsilon,
                           kEpsilonTolerance);
      EXPECT_GE(a.cumulative_epsilon, b.cumulative_epsilon);  // what is charged more is charged
      // The same noise under the same seed.
      const auto x = fused.steps[t].gradients.values(), y = rows.steps[t].gradients.values();
      for (std::size_t k = 0; k < x.size(); ++k) EXPECT_NEAR(x[k], y[k], kMetricTolerance);
    }
  }
}

// ---------------------------------------------------------------- E2

// The noise of a run in units of its standard deviation: the release less that of the same step
// without noise.
std::vector<double> residuals(const Config& config, Form form, std::uint64_t first_seed,
                              double scale = 1) {
  Config silent = config;
  silent.privacy.debug = true;
  silent.privacy.noise_multiplier = 0;
  std::vector<double> out;
  for (std::uint64_t seed = first_seed; seed < first_seed + kSeeds; ++seed) {
    const Trajectory noisy = follow(config, seed, {1, form}),
                     quiet = follow(silent, seed, {1, form});
    for (std::size_t t = 0; t < noisy.steps.size(); ++t) {
      const Partition parts = partition(small_model(), Cut::kLayer);
      for (std::size_t i = 0; i < small_model().size(); ++i) {
        const auto x = noisy.steps[t].gradients.tensor(i), y = quiet.steps[t].gradients.tensor(i);
        for (std::size_t k = 0; k < x.size(); ++k) {
          const std::uint32_t g = parts.part_of[i];
          const double stddev = noisy.steps[t].metrics.noise_scale_sigma * noisy.multipliers[t][g] *
                                noisy.clip_norms[t][g] / kRecords;
          out.push_back(scale * (x[k] - y[k]) / stddev);
        }
      }
    }
  }
  std::ranges::sort(out);
  return out;
}

// The largest distance of the two empirical distribution functions, over its critical value at
// alpha = 0.01 (Smirnov's asymptotic 1.628 sqrt((n + m) / nm)): equal distributions pass 1 with
// probability 0.01. Sorted samples.
double ks_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  const double n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  double distance = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const double x = std::min(a[i], b[j]);
    while (i < a.size() && a[i] <= x) ++i;
    while (j < b.size() && b[j] <= x) ++j;
    distance =
        std::max(distance, std::fabs(static_cast<double>(i) / n - static_cast<double>(j) / m));
  }
  return distance / (1.628 * std::sqrt((n + m) / (n * m)));
}

TEST(EquivalenceE2, OfFusedClippingAndExplicitRows) {
  // Disjoint seeds: with the same ones the noise would be the same, and the test would see nothing.
  const auto fused = residuals(passes_config(true), Form::kPasses, 100);
  const auto rows = residuals(rows_config(), Form::kRows, 200);
  ASSERT_EQ(fused.size(), kSeeds * kSteps * 30);
  EXPECT_LE(ks_ratio(fused, rows), 1);
  // The test sees noise that is a third too small.
  EXPECT_GT(ks_ratio(residuals(passes_config(true), Form::kPasses, 100, 1.5), rows), 1);
}

TEST(EquivalenceE2, OfTheTwoLayoutsOfTheNoiseStream) {
  Config per_step = rows_config();
  per_step.privacy.noise_seed_per_step = true;
  EXPECT_LE(
      ks_ratio(residuals(per_step, Form::kRows, 300), residuals(rows_config(), Form::kRows, 400)),
      1);
}

// ---------------------------------------------------------------- failures

TEST(EquivalenceOfFailures, BudgetOverflowIsTheSameRecordInEveryImplementation) {
  const auto tight = [](Config config) {
    config.privacy.declared_size = kRecords;  // all take part: epsilon grows fast
    config.privacy.noise_multiplier = 4;
    config.privacy.target_epsilon = 2;
    return config;
  };
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const Trajectory one = follow(tight(small_config()), seed, {}, 100);
    ASSERT_TRUE(one.failure);
    EXPECT_EQ(one.failure->failure_code, "PRIVACY_BUDGET_EXCEEDED");
    EXPECT_EQ(one.failure->state_fp, sha256(one.state));
    expect_e0(one, follow(tight(small_config()), seed, {4}, 100));
    expect_e0(one, follow(tight(small_config()), seed, {1, Form::kRows, 1}, 100));
    const Trajectory fused = follow(tight(passes_config(true)), seed, {1, Form::kPasses}, 100);
    const Trajectory swept = follow(tight(passes_config(false)), seed, {1, Form::kPasses}, 100);
    ASSERT_TRUE(fused.failure && swept.failure);
    EXPECT_EQ(fused.failure->t, swept.failure->t);
    EXPECT_EQ(fused.failure->failure_code, swept.failure->failure_code);
    EXPECT_EQ(fused.failure->failure_operator, swept.failure->failure_operator);
    EXPECT_EQ(fused.failure->diagnostics, swept.failure->diagnostics);
  }
}

// Two evaluations of the accountant that contradict each other, as a faulty machine would make
// them: the interval of one path, and another that does not meet it.
FailureRecord diverge(Mechanism& m) {
  const accounting::Interval found = m.spent().epsilon;
  try {
    accounting::require_overlap(accounting::Path::kContour, found, accounting::Path::kTransform,
                                {found.upper * 1.01, found.upper * 1.02});
  } catch (const Error& error) {
    return m.emit_error(error);
  }
  return {};
}

TEST(EquivalenceOfFailures, AccountantDivergenceIsTheSameRecordInEveryImplementation) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Config config = small_config();
    config.privacy.seed = seed;
    Mechanism one = start(config, 1), four = start(config, 4), resumed = start(config, 1);
    for (int t = 0; t < 2; ++t) {
      small_step(one, seed);
      small_step(four, seed);
    }
    resumed.restore(one.save());
    const FailureRecord record = diverge(one);
    EXPECT_EQ(record.failure_code, "ACCOUNTANT_DIVERGENCE");
    EXPECT_EQ(record.state_fp, sha256(one.save()));
    EXPECT_EQ(cbor::encode(record.to_cbor()), cbor::encode(diverge(four).to_cbor()));
    EXPECT_EQ(cbor::encode(record.to_cbor()), cbor::encode(diverge(resumed).to_cbor()));
  }
}

}  // namespace
}  // namespace discreet::conformance
