#include "discreet/run/recount.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "discreet/base/error.h"
#include "discreet/base/folder_testing.h"
#include "discreet/mechanism/step/apply_testing.h"

namespace discreet::run {
namespace {

using namespace mechanism;
namespace small = mechanism::small;

// A trace as the mechanism writes it, and what the mechanism itself says that it spent.
struct Traced {
  Config config;
  std::vector<TraceLine> lines;
  accounting::Interval spent;
};

using Change = std::function<void(DpConfig&)>;

Config config_of(const Change& change) {
  Config config = small::base();
  config.privacy.target_epsilon = 60;
  change(config.privacy);
  return resolved(config);
}

void take_steps(Mechanism& m, TraceWriter& trace, int steps) {
  for (int i = 0; i < steps; ++i) trace.append("iter", trace_iter(small::step(m)));
}

Traced trace_of(const Change& change, int steps, std::vector<PriorRelease> before = {}) {
  const Folder folder;
  const Config config = config_of(change);
  Mechanism m = mechanism_of(config, small::model(), 1, 1, std::move(before));
  TraceWriter trace = TraceWriter::create(folder / "trace.jsonl", m.trace_header());
  take_steps(m, trace, steps);
  return {config, trace_lines(folder / "trace.jsonl"), m.spent().epsilon};
}

void expect_same(const Traced& traced, const std::string& name) {
  const Recount found = recount(traced.config, traced.lines);
  ASSERT_TRUE(found.known) << name;
  EXPECT_EQ(found.spent.upper, traced.spent.upper) << name;
  EXPECT_EQ(found.spent.lower, traced.spent.lower) << name;
}

TEST(Recount, OfGaussianRunsIsTheMechanismsOwnNumberInEveryBit) {
  const std::pair<const char*, Change> runs[] = {
      {"plain", [](DpConfig&) {}},
      {"rdp", [](DpConfig& dp) { dp.accountant = AccountantKind::kRdp; }},
      {"moments", [](DpConfig& dp) { dp.accountant = AccountantKind::kMoments; }},
      {"per epoch", [](DpConfig& dp) { dp.accountant_granularity = Granularity::kPerEpoch; }},
      {"per layer", [](DpConfig& dp) { dp.clip_strategy = ClipStrategy::kPerLayer; }},
      {"adaptive", [](DpConfig& dp) { dp.clip_strategy = ClipStrategy::kAdaptive; }},
      {"released metrics", [](DpConfig& dp) { dp.metrics_release = MetricsRelease::kDp; }},
      {"decaying",
       [](DpConfig& dp) {
         dp.mode = ScheduleMode::kStepDecay;
         dp.decay_every = 3;
         dp.decay_factor = 0.98;
       }},
      {"meeting a target",
       [](DpConfig& dp) {
         dp.mode = ScheduleMode::kMeetExactly;
         dp.target_epsilon = 2;
       }},
      {"rounded",
       [](DpConfig& dp) {
         dp.noise_family = NoiseFamily::kRoundedGaussian;
         dp.noise_discrete = 0x1p-13;
       }},
      {"balls and bins",
       [](DpConfig& dp) {
         dp.sampling_mode = SamplingMode::kBallsAndBins;
         dp.accountant_granularity = Granularity::kPerEpoch;
         dp.subsampling = Subsampling::kShuffleWithoutReplacement;
         dp.effective_batch_size = 500;
         dp.target_steps = 10;
       }},
  };
  for (const auto& [name, change] : runs) expect_same(trace_of(change, 7), name);
}

TEST(Recount, IncludesWhatWasReleasedBeforeTheFirstStep) {
  const accounting::Event event(accounting::Gaussian{3}, accounting::NoSampling{},
                                accounting::Adjacency::kAddRemove);
  for (const int steps : {0, 3})
    expect_same(trace_of([](DpConfig&) {}, steps, {{event, 4}}), "before");
}

TEST(Recount, OfOtherFamiliesIsJustBelowTheMechanismsNumber) {
  const std::pair<NoiseFamily, AccountantKind> families[] = {
      {NoiseFamily::kLaplace, AccountantKind::kRdp},
      {NoiseFamily::kDiscreteGaussian, AccountantKind::kRdp},
  };
  for (const auto& [family, accountant] : families) {
    const Traced traced = trace_of(
        [&](DpConfig& dp) {
          dp.noise_family = family;
          dp.accountant = accountant;
          dp.noise_multiplier = 4;
          if (has_grid(family)) dp.noise_discrete = 0x1p-10;
        },
        5);
    const double upper = recount(traced.config, traced.lines).spent.upper;
    EXPECT_LE(upper, traced.spent.upper * (1 + 1e-12));
    EXPECT_GE(upper, traced.spent.upper * 0.999);
  }
}

TEST(Recount, RejectsATraceWithoutHeaderAndFieldsOfAnotherType) {
  const Traced whole = trace_of([](DpConfig&) {}, 2);
  const auto code = [&](std::vector<TraceLine> lines) {
    try {
      recount(whole.config, lines);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kIoError;
  };
  EXPECT_EQ(code({}), ErrorCode::kMalformed);
  EXPECT_EQ(code({whole.lines[1]}), ErrorCode::kMalformed);
  auto lines = whole.lines;
  lines.push_back({"resumed", R"({"charged_again": "3"})"});
  EXPECT_EQ(code(lines), ErrorCode::kMalformed);
  for (const char* t : {"-1", "1e300"}) {
    lines = whole.lines;
    std::string& text = lines[1].text;
    text.replace(text.find("\"t\":0"), 5, std::string("\"t\":") + t);
    EXPECT_EQ(code(lines), ErrorCode::kMalformed) << t;
  }
}

TEST(Recount, CountsStepsThatWereExecutedAgain) {
  for (const Granularity granularity : {Granularity::kPerStep, Granularity::kPerEpoch}) {
    const Folder folder;
    const Config config = config_of([&](DpConfig& dp) {
      dp.accountant_granularity = granularity;
      dp.effective_batch_size = 250;
    });
    Mechanism m = mechanism_of(config, small::model());
    TraceWriter trace = TraceWriter::create(folder / "trace.jsonl", m.trace_header());
    const auto steps = [&](int n) {
      for (int i = 0; i < n; ++i) trace.append("iter", trace_iter(small::step(m, 250)));
    };
    steps(2);
    const Bytes saved = m.save();
    const TracePosition at = trace.position();
    steps(4);
    Mechanism next = mechanism_of(config, small::model());
    next.restore(saved, 6);
    TraceWriter more = TraceWriter::extend(
        folder / "trace.jsonl", at,
        cbor::map({{"t", 2}, {"released", 6}, {"charged_again", 4}, {"differs", "bits"}}));
    for (int i = 0; i < 5; ++i) more.append("iter", trace_iter(small::step(next, 250)));
    expect_same({config, trace_lines(folder / "trace.jsonl"), next.spent().epsilon}, "again");
  }
}

TEST(Recount, KnowsThePlanAndTheBudgetOfAFixedSchedule) {
  const Traced part = trace_of([](DpConfig& dp) { dp.target_steps = 40; }, 4);
  const Traced whole = trace_of([](DpConfig& dp) { dp.target_steps = 40; }, 40);
  const Recount found = recount(part.config, part.lines);
  EXPECT_EQ(found.planned, whole.spent.upper);
  EXPECT_EQ(found.at_budget, false);
  const double one_more = trace_of([](DpConfig& dp) { dp.target_steps = 40; }, 5).spent.upper;
  Config tight = part.config;
  tight.privacy.target_epsilon = one_more;
  EXPECT_EQ(recount(tight, part.lines).at_budget, false);
  tight.privacy.target_epsilon = std::nextafter(one_more, 0);
  EXPECT_EQ(recount(tight, part.lines).at_budget, true);
  // A plan that the budget ends is planned up to there.
  const double middle = trace_of([](DpConfig& dp) { dp.target_steps = 40; }, 23).spent.upper;
  for (const double target : {middle, std::nextafter(middle, 100.0)}) {
    tight.privacy.target_epsilon = target;
    EXPECT_EQ(recount(tight, part.lines).planned, middle);
  }
  const auto decays = [](DpConfig& dp) { dp.mode = ScheduleMode::kStepDecay; };
  const Traced other = trace_of(decays, 4);
  EXPECT_FALSE(recount(other.config, other.lines).planned);
  EXPECT_FALSE(recount(other.config, other.lines).at_budget);
}

// One field of one line with another value.
std::vector<TraceLine> edited(const Traced& traced, std::size_t line, const std::string& from,
                              const std::string& to) {
  std::vector<TraceLine> out = traced.lines;
  const std::size_t at = out[line].text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  out[line].text.replace(at, from.size(), to);
  return out;
}

TEST(Recount, RejectsNoiseThatTheConfigurationDoesNotHave) {
  const Traced traced = trace_of([](DpConfig&) {}, 3);
  const auto rejected = [&](std::size_t line, const char* from, const char* to) {
    try {
      recount(traced.config, edited(traced, line, from, to));
    } catch (const Error& error) {
      return error.code() == ErrorCode::kMalformed;
    }
    return false;
  };
  EXPECT_TRUE(rejected(2, "\"effective_noise_multiplier\":0", "\"effective_noise_multiplier\":9"));
  EXPECT_TRUE(rejected(2, "\"noise_scale_sigma\":1", "\"noise_scale_sigma\":2"));
  EXPECT_TRUE(rejected(2, "\"effective_noise_multiplier\":0", "\"effective_noise\":0"));
  EXPECT_TRUE(rejected(2, "\"effective_noise_multiplier\":0", "\"effective_noise_multiplier\":-0"));
  EXPECT_TRUE(rejected(0, "\"accounted_delta\":9", "\"accounted_delta\":99"));
}

TEST(Recount, ToleratesLastDigitsOnly) {
  EXPECT_FALSE(is_below(1, 1));
  EXPECT_FALSE(is_below(1, 1 + 1e-12));
  EXPECT_TRUE(is_below(1, 1 + 1e-6));
  EXPECT_TRUE(is_below(std::nan(""), 1));
}

}  // namespace
}  // namespace discreet::run
