#include "discreet/training/train.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "discreet/base/error.h"
#include "discreet/run/environment.h"
#include "discreet/run/run_keys.h"
#include "discreet/training/safetensors.h"
#include "discreet/training/train_testing.h"

namespace discreet::training {
namespace {

namespace fs = std::filesystem;

// ---------------------------------------------------------------- what a run leaves

TEST(Train, LearnsAndLeavesTheFilesOfARun) {
  const SmallRun run;
  const RunResult result = run.train("a");
  EXPECT_EQ(result.ended, Ended::kCompleted);
  EXPECT_EQ(result.steps, 30u);
  // Of 600 secret keys, the lowest gave 0.86, and each 0.02 below 0.9 was at least four times rarer
  // than the one above: below 0.7 about one in 10⁷. LearnsUnderAFixedSeed asks for more.
  EXPECT_GT(result.accuracy.value(), 0.7);
  ASSERT_TRUE(result.epsilon);
  EXPECT_LE(result.epsilon->lower, result.epsilon->upper);
  EXPECT_LE(result.epsilon->upper, 20);
  EXPECT_TRUE(result.not_private.empty());
  for (const char* file : {"config.yaml", "model.safetensors", "checkpoint.cbor", "trace.jsonl"})
    EXPECT_TRUE(fs::exists(run.folder / "a" / file)) << file;
  EXPECT_EQ(fs::status(run.folder / "a" / "secret.key").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST(Train, LearnsUnderAFixedSeed) {
  SmallRun run;
  run.config.privacy.secure = false;
  EXPECT_GT(run.train("a").accuracy.value(), 0.9);
}

TEST(Train, ComputesEpsilonASecondTimeWhenAsked) {
  SmallRun run;
  const RunResult once = run.train("a");
  run.config.privacy.verify_accounting = true;
  const RunResult twice = run.train("b");
  EXPECT_EQ(twice.epsilon->upper, once.epsilon->upper);
  EXPECT_EQ(run.read("a", "config.yaml").find("verify_accounting"), std::string::npos);
  EXPECT_NE(run.read("b", "config.yaml").find("verify_accounting: true"), std::string::npos);
}

// Earlier versions wrote whole paths into config.yaml and took them into its hash.
TEST(Train, ResumesARunOfAnEarlierVersionUnderItsOwnHash) {
  SmallRun run;
  run.config.has_whole_paths = true;
  std::atomic<bool> stop = false;
  TrainOptions options = run.options("a");
  options.stop = &stop;
  options.progress = [&](const Progress& p) { stop = p.step == 10; };
  training::train(run.resolved(), options);
  const std::string before = run.read("a", "config.yaml");
  EXPECT_NE(before.find((run.folder / "train.csv").string()), std::string::npos);
  run.config.has_whole_paths = false;
  EXPECT_EQ(run.train("a", /*resume=*/true).steps, 30u);
  EXPECT_EQ(run.read("a", "config.yaml"), before);
  run.train("b");
  EXPECT_EQ(run.read("b", "config.yaml").find((run.folder / "train.csv").parent_path().string()),
            std::string::npos);
  EXPECT_NE(lines_of(run.read("a", "trace.jsonl"), "run_header").at(0).at("config_hash"),
            lines_of(run.read("b", "trace.jsonl"), "run_header").at(0).at("config_hash"));
}

TEST(Train, MinimisesOneScalarTheMeanLoss) {  // S1-0.A-1
  const SmallRun run;
  run.train("a");
  const std::string trace = run.read("a", "trace.jsonl");
  EXPECT_EQ(lines_of(trace, "run_header").at(0).at("objective"), "minimize");
  const auto evaluations = lines_of(trace, "evaluation");
  ASSERT_EQ(evaluations.size(), 3u);  // 200 / 20 steps an epoch
  EXPECT_LT(evaluations[2].at("test_loss").get<double>(),
            evaluations[0].at("test_loss").get<double>());
}

TEST(Train, TraceNamesRateBatchSizeAndAccumulationAsDeclared) {  // S1-0.L-2
  SmallRun run;
  run.config.privacy.declared_size = 210;  // rows are 200: never taken from the data
  run.config.privacy.gradient_accumulation_steps = 3;
  run.train("a");
  const auto header = lines_of(run.read("a", "trace.jsonl"), "run_header").at(0);
  EXPECT_EQ(header.at("declared_size"), 210);
  EXPECT_EQ(header.at("effective_batch_size"), 20);
  EXPECT_DOUBLE_EQ(header.at("sampling_rate").get<double>(), 20.0 / 210);
  EXPECT_EQ(header.at("gradient_accumulation_steps"), 3);
  for (const auto& line : lines_of(run.read("a", "trace.jsonl"), "iter"))
    EXPECT_EQ(line.at("effective_accumulation_factor"), 3);
}

TEST(Train, RefusesMoreRecordsThanDeclared) {
  SmallRun run;
  run.config.privacy.declared_size = 199;
  const Error error = error_of([&] { run.train("a"); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
  EXPECT_NE(error.sentence().find("declared_size is 199, but there are 200"), std::string::npos);
}

TEST(Train, KeysDifferWithTheEnvironmentARunWasBegunIn) {
  const random::Key key = random::Key::from_seed(1);
  const auto coins = [&](const char* blas) {
    const random::Key in = run::in_environment(key, cbor::map({{"blas", blas}}));
    return in.secret_bytes()[0] | in.secret_bytes()[1] << 8 | in.secret_bytes()[2] << 16;
  };
  EXPECT_EQ(coins("a"), coins("a"));
  EXPECT_NE(coins("a"), coins("b"));
}

TEST(Train, EndLineHoldsTheClaim) {
  const SmallRun run;
  const RunResult result = run.train("a");
  const auto end = lines_of(run.read("a", "trace.jsonl"), "run_end").at(0);
  EXPECT_EQ(end.at("epsilon").at("upper").get<double>(), result.epsilon->upper);
  EXPECT_EQ(end.at("ended"), "completed");
  EXPECT_EQ(end.at("adjacency"), "add_remove");
  EXPECT_EQ(end.at("steps"), 30);
  EXPECT_EQ(end.at("planned_steps"), 30);
  EXPECT_EQ(end.at("accuracy").get<double>(), *result.accuracy);
}

TEST(Train, WithoutPrivacyTheSameCodeClaimsNothing) {
  SmallRun run;
  run.config.privacy.enabled = false;
  const RunResult result = run.train("a");
  EXPECT_FALSE(result.epsilon);
  EXPECT_FALSE(result.not_private.empty());
  EXPECT_GT(result.accuracy.value(), 0.9);
}

TEST(Train, NoNoiseClaimsNothing) {
  SmallRun run;
  run.config.privacy.debug = true;
  run.config.privacy.noise_multiplier = 0;
  const RunResult result = run.train("a");
  EXPECT_FALSE(result.epsilon);
  EXPECT_FALSE(result.not_private.empty());
}

TEST(Train, WritesTheAverageOfIteratesIfThereIsOne) {
  SmallRun run;
  run.config.privacy.secure = false;
  run.train("weights");
  run.config.optimizer.average = 0.9;
  run.train("average");
  const auto model = [&](const char* name) {
    return decode_safetensors(read_file(run.folder / name / "model.safetensors"));
  };
  EXPECT_NE(model("weights").at(0).values, model("average").at(0).values);
}

TEST(Train, MomentumAndAveragesCostNothing) {  // post-processing of what was released
  SmallRun run;
  const RunResult plain = run.train("plain");
  run.config.optimizer.momentum = 0.9;
  run.config.optimizer.average = 0.99;
  const RunResult smooth = run.train("smooth");
  ASSERT_TRUE(plain.epsilon && smooth.epsilon);
  EXPECT_EQ(plain.epsilon->upper, smooth.epsilon->upper);
}

TEST(Train, GhostAndExplicitGradientsGiveTheSameModelUpToRounding) {
  SmallRun run;
  run.config.privacy.secure = false;
  run.train("ghost");
  run.config.privacy.clip_ghost = false;
  run.train("explicit");
  const auto model = [&](const char* name) {
    return decode_safetensors(read_file(run.folder / name / "model.safetensors"));
  };
  const auto a = model("ghost"), b = model("explicit");
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t k = 0; k < a[i].values.size(); ++k)
      EXPECT_NEAR(a[i].values[k], b[i].values[k], 1e-5);
}

TEST(Train, MicrobatchesOfAnySizeGiveTheSameModelUpToRounding) {
  SmallRun run;
  run.config.privacy.secure = false;
  run.train("one");
  run.config.privacy.max_microbatch = 3;
  run.config.privacy.gradient_accumulation_steps = 4;
  run.train("many");
  const auto model = [&](const char* name) {
    return decode_safetensors(read_file(run.folder / name / "model.safetensors"));
  };
  const auto a = model("one"), b = model("many");
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t k = 0; k < a[i].values.size(); ++k)
      EXPECT_NEAR(a[i].values[k], b[i].values[k], 1e-5);
}

TEST(Train, EmptyBatchesStep) {
  SmallRun run;
  run.config.privacy.effective_batch_size = 1;  // about one batch in three has no record
  const RunResult result = run.train("a");
  EXPECT_EQ(result.steps, 30u);
}

// ---------------------------------------------------------------- the same bits

TEST(Train, SameBytesForAnyNumberOfThreads) {
  SmallRun run;
  run.config.model.kind = ModelKind::kMlp;
  run.config.model.hidden = {70};
  run.train("one");
  for (const auto& [name, threads] : {std::pair{"two", 2}, {"three", 3}}) {
    run.share_secret("one", name);
    run.train(name, true, threads);
    expect_same_run(run, "one", name);
  }
}

TEST(Train, ReplaysFromConfigurationDataAndKey) {  // S1-0.B-4
  const SmallRun run;
  run.train("a");
  run.share_secret("a", "b");
  run.train("b", true);
  expect_same_run(run, "a", "b");
  run.train("other key");
  EXPECT_NE(run.read("a", "model.safetensors"), run.read("other key", "model.safetensors"));
}

TEST(Train, InterruptedAndResumedAnywhereIsTheSameRun) {
  const SmallRun run;
  run.train("whole");
  for (const std::uint64_t at : {1, 6, 7, 8, 10, 20, 29}) {
    const std::string name = "cut" + std::to_string(at);
    run.share_secret("whole", name.c_str());
    TrainOptions options = run.options(name.c_str());
    options.resume = true;
    StopAfter stop;
    stop.on(options, at);
    EXPECT_EQ(training::train(run.resolved(), options).ended, Ended::kInterrupted);
    run.train(name.c_str(), true);
    expect_same_run(run, "whole", name.c_str());
  }
}

// As a killed process leaves it: the trace cut at any byte at or after the checkpoint's place.
TEST(Train, TraceCutAnywhereAfterItsCheckpointIsCompleted) {
  const SmallRun run;
  run.train("whole");
  const std::string trace = run.read("whole", "trace.jsonl");
  run.share_secret("whole", "begun");
  for (std::size_t length = 0; length < trace.size(); length += 997) {
    fs::remove_all(run.folder / "cut");
    run.share_secret("whole", "cut");
    fs::copy(run.folder / "whole" / "config.yaml", run.folder / "cut" / "config.yaml");
    std::ofstream(run.folder / "cut" / "trace.jsonl") << trace.substr(0, length);
    run.train("cut", true);
    expect_same_run(run, "whole", "cut");
  }
}

TEST(Train, ResumeOfACompletedRunChangesNothing) {
  const SmallRun run;
  const RunResult first = run.train("a");
  const std::string trace = run.read("a", "trace.jsonl"),
                    model = run.read("a", "model.safetensors");
  const RunResult again = run.train("a", true);
  EXPECT_EQ(again.ended, Ended::kCompleted);
  EXPECT_EQ(again.epsilon->upper, first.epsilon->upper);
  EXPECT_EQ(run.read("a", "trace.jsonl"), trace);
  EXPECT_EQ(run.read("a", "model.safetensors"), model);
}

// ---------------------------------------------------------------- budget and stopping

TEST(Train, EndsBeforeTheStepThatWouldExceedTheBudget) {
  SmallRun run;
  run.config.privacy.target_epsilon = 3;
  const RunResult result = run.train("a");
  EXPECT_EQ(result.ended, Ended::kBudgetReached);
  EXPECT_LT(result.steps, 30u);
  EXPECT_GT(result.steps, 0u);
  EXPECT_LE(result.epsilon->upper, 3);
  EXPECT_TRUE(fs::exists(run.folder / "a" / "model.safetensors"));
  EXPECT_EQ(lines_of(run.read("a", "trace.jsonl"), "iter").size(), result.steps);
  // Resuming spends nothing more.
  EXPECT_EQ(run.train("a", true).steps, result.steps);
}

TEST(Train, RefusesABudgetThatAdmitsNoStepAndLeavesNoFiles) {
  SmallRun run;
  run.config.privacy.target_epsilon = 0.01;
  const Error error = error_of([&] { run.train("a"); });
  EXPECT_EQ(error.code(), ErrorCode::kPrivacyBudgetExceeded);
  EXPECT_FALSE(fs::exists(run.folder / "a"));
}

TEST(Train, InterruptedRunClaimsThePlannedSteps) {
  const SmallRun run;
  const RunResult whole = run.train("whole");
  TrainOptions options = run.options("cut");
  StopAfter stop;
  stop.on(options, 5);
  const RunResult cut = training::train(run.resolved(), options);
  EXPECT_EQ(cut.ended, Ended::kInterrupted);
  EXPECT_EQ(cut.steps, 5u);
  EXPECT_GE(cut.epsilon->upper, whole.epsilon->upper);
  EXPECT_LE(cut.epsilon->upper, 1.001 * whole.epsilon->upper);
  EXPECT_EQ(lines_of(run.read("cut", "trace.jsonl"), "run_end").at(0).at("ended"), "interrupted");
}

TEST(Train, InterruptedRunClaimsWhereTheBudgetWouldHaveEndedIt) {
  SmallRun run;
  run.config.privacy.target_epsilon = 3;
  const RunResult whole = run.train("whole");
  TrainOptions options = run.options("cut");
  StopAfter stop;
  stop.on(options, 2);
  const RunResult cut = training::train(run.resolved(), options);
  EXPECT_EQ(cut.ended, Ended::kInterrupted);
  EXPECT_EQ(cut.epsilon->upper, whole.epsilon->upper);
  EXPECT_LE(cut.epsilon->upper, 3);
}

// ---------------------------------------------------------------- what is recorded

TEST(Train, WarningsAndTheEndOfTheBudgetAreInTheTrace) {
  SmallRun run;
  run.config.privacy.target_epsilon = 3;
  const RunResult result = run.train("a");
  const std::string trace = run.read("a", "trace.jsonl");
  const auto warnings = lines_of(trace, "warning");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].at("warning").get<std::string>().find("safety reserve"), std::string::npos);
  const auto failures = lines_of(trace, "failure");
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].at("failure_code"), "PRIVACY_BUDGET_EXCEEDED");
  EXPECT_EQ(failures[0].at("t"), result.steps);
  // Resumed, the run ends as before: nothing is recorded twice.
  run.train("a", true);
  EXPECT_EQ(run.read("a", "trace.jsonl"), trace);
}

TEST(Train, RaisedNoiseIsAWarning) {
  SmallRun run;
  run.config.privacy.target_epsilon = 3;
  run.config.privacy.projection_policy = ProjectionPolicy::kUpscale;
  run.train("a");
  const auto warnings = lines_of(run.read("a", "trace.jsonl"), "warning");
  ASSERT_FALSE(warnings.empty());
  EXPECT_NE(warnings[0].at("warning").get<std::string>().find("noise raised"), std::string::npos);
}

// After one step of such a rate nothing that the model computes is finite.
struct OverflowingRun : SmallRun {
  explicit OverflowingRun(NonfinitePolicy policy) {
    config.model.kind = ModelKind::kMlp;
    config.model.hidden = {4};
    config.privacy.nonfinite = policy;
    config.privacy.clip_ghost = false;
    config.optimizer.rate = 1e38;
  }
};

TEST(Train, AFailureInTheFirstStepsIsRecordedAndTheDirectoryStays) {
  const OverflowingRun run(NonfinitePolicy::kAbort);
  const Error error = error_of([&] { run.train("a"); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidGradient);
  const std::string trace = run.read("a", "trace.jsonl");
  const auto failures = lines_of(trace, "failure");
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].at("failure_code"), "INVALID_GRADIENT");
  // Started again elsewhere it would draw other noise; here it is rejected, and resumed it fails as
  // before.
  EXPECT_EQ(error_of([&] { run.train("a"); }).code(), ErrorCode::kInvalidInput);
  EXPECT_EQ(error_of([&] { run.train("a", true); }).code(), ErrorCode::kInvalidGradient);
  EXPECT_EQ(run.read("a", "trace.jsonl"), trace);
}

TEST(Train, StepsOfWhichNothingIsLeftAreSaid) {
  const OverflowingRun run(NonfinitePolicy::kZero);
  const RunResult result = run.train("a");
  EXPECT_NE(result.zeroed.find("not finite"), std::string::npos);
  const std::string trace = run.read("a", "trace.jsonl");
  bool warned = false;
  for (const auto& line : lines_of(trace, "warning"))
    warned =
        warned || line.at("warning").get<std::string>().find("not finite") != std::string::npos;
  EXPECT_TRUE(warned);
  const auto zeroed = lines_of(trace, "run_end").at(0).at("zeroed_steps").get<std::uint64_t>();
  EXPECT_GT(zeroed, 0u);  // how many depends on the noise, whose key is new in every run
  // Cut and resumed, the count is the same.
  TrainOptions options = run.options("cut");
  run.share_secret("a", "cut");
  options.resume = true;
  StopAfter stop;
  stop.on(options, 16);
  training::train(run.resolved(), options);
  run.train("cut", true);
  EXPECT_EQ(run.read("cut", "trace.jsonl"), trace);
}

TEST(Train, ReleasedMetricsAreRecorded) {
  SmallRun run;
  run.config.privacy.metrics_release = MetricsRelease::kDp;
  const RunResult result = run.train("a");
  ASSERT_TRUE(result.released);
  const auto lines = lines_of(run.read("a", "trace.jsonl"), "iter");
  for (const auto& line : lines) {
    const double fraction = line.at("released").at("clip_fraction");
    EXPECT_GE(fraction, 0);
    EXPECT_LE(fraction, 1);
  }
  EXPECT_EQ(lines.back().at("released").at("clip_fraction"), result.released->clip_fraction);
}

TEST(Train, NamesTheAccountantThatGaveTheUpperEnd) {
  SmallRun run;
  run.config.privacy.accountant = AccountantKind::kGdp;
  run.train("a");
  for (const auto& line : lines_of(run.read("a", "trace.jsonl"), "iter"))
    EXPECT_EQ(line.at("accountant_type_used"), "rdp");
}

}  // namespace
}  // namespace discreet::training
