// Every failure code of the specification's 0.K: its cause, its record, and that nothing
// changed.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "discreet/accounting/pld.h"
#include "tests/conformance/small_run.h"

namespace discreet::conformance {
namespace {

struct Failure {
  const char* code;
  const char* failure_operator;
  std::function<void(DpConfig&)> change;
  std::function<void(Mechanism&)> provoke;  // throws
  int steps = 2;                            // done before
};

// The saved state with one field replaced.
Bytes with_field(const Bytes& state, std::string_view key, const cbor::Value& value) {
  std::vector<cbor::Entry> entries = cbor::decode(state).as_map();
  for (cbor::Entry& entry : entries)
    if (entry.key == cbor::Value(key)) entry.value = value;
  return cbor::encode(cbor::map(std::move(entries)));
}

void leave_as_is(DpConfig&) {}

accounting::Event one_step() {
  return {accounting::Gaussian{1}, accounting::Poisson{0.01}, accounting::Adjacency::kAddRemove};
}

std::vector<Failure> failures() {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  return {
      {"PRIVACY_BUDGET_EXCEEDED", "Accountant.Update_v1",
       [](DpConfig& dp) {
         dp.declared_size = kRecords;  // all take part: epsilon grows fast
         dp.noise_multiplier = 4;
         dp.target_epsilon = 2;
       },
       [](Mechanism& m) { small_step(m, 1); }},
      {"PRIVACY_BUDGET_EXCEEDED", "DPScalingLawProjector_v1",
       [](DpConfig& dp) {
         dp.noise_multiplier = 0.5;
         dp.target_epsilon = 2;
         dp.projection_policy = ProjectionPolicy::kAbort;
       },
       [](Mechanism& m) { small_step(m, 1); }, 0},
      {"INVALID_GRADIENT", "ClipPerSample_v1", leave_as_is,
       [](Mechanism& m) {
         SmallBatch batch(1, 0);
         batch.spoil();
         const Microbatch one = batch.part(Form::kRows, 0, kRecords);
         m.apply(std::span(&one, 1));
       }},
      {"INVALID_GRADIENT", "Apply_v3", leave_as_is,
       [](Mechanism& m) {
         const SmallBatch batch(1, 0, m.most_records() + 1);
         m.accumulate(batch.part(Form::kRows, 0, m.most_records() + 1));
       }},
      {"INVALID_DP_CONFIG", "Apply_v3", [](DpConfig& dp) { dp.gradient_accumulation_steps = 2; },
       [](Mechanism& m) {
         const SmallBatch batch(1, 0);
         const Microbatch one = batch.part(Form::kRows, 0, kRecords);
         m.apply(std::span(&one, 1));
       }},
      {"INVALID_DP_CONFIG", "PreValidation_v1", leave_as_is,
       [](Mechanism& m) {
         Config config = m.config();
         config.privacy.noise_multiplier = kNan;
         start(config);
       }},
      {"RNG_CONSUMPTION_VIOLATION", "SequentialCounter::declare", leave_as_is,
       [](Mechanism& m) { small_step(m, 1); }},
      {"NAN_IN_SIGMA", "GenerateNoise_v1", leave_as_is,
       [](Mechanism& m) {
         GradientSum values(m.layout());
         const std::vector<double> stddev = {kNan};
         NoiseRequest request;
         request.stddev = stddev;
         generate_noise(m.layout(), m.allocation().plan.partition, request,
                        mechanism_streams(m.config().privacy, random::Key::from_seed(0)).noise, {},
                        values);
       }},
      {"NAN_IN_SIGMA", "PrivacyBudgetScheduler_v1", leave_as_is,
       [](Mechanism& m) {
         Scheduler scheduler(ScheduleMode::kFixed, {{0, kNan}}, {1, 1e-5, 10},
                             StepEvent{[](double) { return one_step(); }});
         scheduler.sigma(m.t(), m.accountant());
       }},
      {"NAN_IN_SIGMA", "PrivacyBudgetAllocator_v1", leave_as_is,
       [](Mechanism& m) { gaussian_groups(m.allocation(), kNan); }},
      {"ACCOUNTANT_OVERFLOW", "PldAccountant", leave_as_is,
       [](Mechanism& m) {
         const auto accountant = m.accountant().clone();
         const std::uint64_t most = std::numeric_limits<std::int64_t>::max() - m.t();
         accountant->compose(one_step(), most);
         const Bytes before = accountant->save();
         EXPECT_THROW(accountant->compose(one_step()), Error);
         EXPECT_EQ(accountant->save(), before);
         accountant->compose(one_step());
       }},
      {"ACCOUNTANT_DIVERGENCE", "PldAccountant", leave_as_is,
       [](Mechanism& m) {
         const accounting::Interval found = m.spent().epsilon;
         accounting::require_overlap(accounting::Path::kContour, found,
                                     accounting::Path::kTransform,
                                     {found.upper * 2, found.upper * 3});
       }},
  };
}

TEST(Failure, OfEveryCodeIsRecordedAndLeavesTheStateAsItWas) {
  std::set<std::string> codes;
  for (const Failure& failure : failures()) {
    SCOPED_TRACE(testing::Message() << failure.code << " by " << failure.failure_operator);
    Config config = small_config();
    failure.change(config.privacy);
    Mechanism m = start(config);
    for (int t = 0; t < failure.steps; ++t) small_step(m, 1);
    // A stream near its end, which no test can reach by drawing.
    if (failure.code == std::string_view("RNG_CONSUMPTION_VIOLATION"))
      m.restore(with_field(m.save(), "rng_dp_state", (std::uint64_t{1} << 62)));
    Bytes before = m.save();
    Digest replay = m.replay();
    bool thrown = false;
    try {
      // Steps that succeed before the one that fails move the state; it must be that of the last.
      if (failure.failure_operator == std::string_view("Accountant.Update_v1")) {
        for (;;) {
          before = m.save();
          replay = m.replay();
          small_step(m, 1);
        }
      }
      failure.provoke(m);
    } catch (const Error& error) {
      thrown = true;
      EXPECT_EQ(m.save(), before);
      const FailureRecord record = m.emit_error(error);
      EXPECT_EQ(record.failure_code, failure.code);
      EXPECT_EQ(record.failure_operator, failure.failure_operator);
      EXPECT_EQ(record.t, m.t());
      EXPECT_EQ(record.dp_replay, replay);
      EXPECT_EQ(record.state_fp, sha256(before));
      EXPECT_EQ(record.diagnostics, error.sentence());
      EXPECT_FALSE(record.diagnostics.empty());
      // The same failure gives the same record.
      EXPECT_EQ(cbor::encode(record.to_cbor()), cbor::encode(m.emit_error(error).to_cbor()));
      codes.insert(record.failure_code);
    }
    EXPECT_TRUE(thrown);
  }
  EXPECT_EQ(codes,
            (std::set<std::string>{"PRIVACY_BUDGET_EXCEEDED", "INVALID_GRADIENT", "NAN_IN_SIGMA",
                                   "ACCOUNTANT_OVERFLOW", "ACCOUNTANT_DIVERGENCE",
                                   "RNG_CONSUMPTION_VIOLATION", "INVALID_DP_CONFIG"}));
}

TEST(Failure, OfAMicrobatchLeavesTheOnesBeforeItAsTheyWere) {
  Config config = small_config();
  config.privacy.gradient_accumulation_steps = 2;
  for (const bool is_first : {true, false}) {
    Mechanism m = start(config);
    const SmallBatch good(1, 0);
    if (!is_first) m.accumulate(good.part(Form::kRows, 0, 5));
    SmallBatch bad(1, 0);
    bad.spoil();
    const Bytes before = m.save();
    EXPECT_THROW(m.accumulate(bad.part(Form::kRows, 0, 5)), Error);
    EXPECT_EQ(m.save(), before);
  }
}

TEST(Failure, OfAStepDoesNotStopTheRunFromGoingOnAsIfItHadNotBeenTried) {
  Mechanism tried = start(small_config()), untouched = start(small_config());
  SmallBatch bad(1, 0);
  bad.spoil();
  const Microbatch one = bad.part(Form::kRows, 0, kRecords);
  EXPECT_THROW(tried.apply(std::span(&one, 1)), Error);
  const StepResult a = small_step(tried, 1), b = small_step(untouched, 1);
  EXPECT_TRUE(std::ranges::equal(a.gradients.values(), b.gradients.values()));
  EXPECT_EQ(tried.save(), untouched.save());
}

}  // namespace
}  // namespace discreet::conformance
