#include "discreet/report/summary.h"

#include <gtest/gtest.h>

#include <fstream>

#include "discreet/base/error.h"
#include "discreet/base/folder_testing.h"
#include "discreet/report/run_testing.h"

namespace discreet::report {
namespace {

RunSummary summary_of(const MadeUpRun& made_up) {
  const Folder folder;
  made_up.write(folder / "run");
  return summarize(folder / "run");
}

ErrorCode refusal(const MadeUpRun& made_up, const std::string& word) {
  try {
    summary_of(made_up);
  } catch (const Error& error) {
    EXPECT_NE(error.sentence().find(word), std::string::npos) << error.sentence();
    return error.code();
  }
  ADD_FAILURE() << "accepted, expected a refusal that names " << word;
  return ErrorCode::kIoError;
}

// Replaces the value of a field in lines of one kind.
auto set(const std::string& kind, const std::string& key, const cbor::Value& value) {
  return [=](const std::string& of, std::vector<cbor::Entry>& fields) {
    if (of != kind) return;
    for (cbor::Entry& field : fields)
      if (field.key.as_text() == key) field.value = value;
  };
}

TEST(Summary, OfACompletedRunHasTheClaimOfItsLastLine) {
  const RunSummary run = summary_of({});
  EXPECT_EQ(run.declared.ended, Ended::kCompleted);
  EXPECT_DOUBLE_EQ(run.declared.claim.upper, 2.7);
  EXPECT_NEAR(*run.declared.claim.lower, 1.807304, 1e-6);  // 60 steps at q = 0.1, sigma = 2
  EXPECT_EQ(run.declared.claim.delta, 1e-5);
  EXPECT_EQ(run.declared.steps, 60u);
  EXPECT_EQ(run.declared.epsilon.size(), 61u);
  EXPECT_EQ(run.observed.evaluations.size(), 6u);
  EXPECT_EQ(run.observed.accuracy, 0.9312);
  EXPECT_TRUE(run.observed.accuracy_is_held_out);
  EXPECT_EQ(run.observed.name, "run");
  ASSERT_EQ(run.declared.parts.size(), 2u);
  EXPECT_EQ(run.declared.parts[0].name, "body");
  EXPECT_EQ(run.declared.parts[0].clip_norm, 0.8);
  EXPECT_EQ(run.declared.parts[0].noise_multiplier, 1.5 * 2);
}

TEST(Summary, OfARunThatStoppedOutOfPlanClaimsThePlanOrTheBudget) {
  const RunSummary interrupted = summary_of({.steps = 15, .ended = "interrupted"});
  EXPECT_EQ(interrupted.declared.ended, Ended::kInterrupted);
  EXPECT_DOUBLE_EQ(interrupted.declared.claim.upper, 2.7);
  EXPECT_FALSE(interrupted.declared.steps);
  EXPECT_TRUE(interrupted.declared.epsilon.empty());
  EXPECT_EQ(interrupted.observed.steps, 15u);

  for (const auto& [ended, meaning] : {std::pair{"", Ended::kUnfinished},
                                       {"mechanism", Ended::kStopped},
                                       {"failed", Ended::kFailed}}) {
    const RunSummary run = summary_of({.steps = 15, .ended = ended});
    EXPECT_EQ(run.declared.ended, meaning);
    EXPECT_EQ(run.declared.claim.upper, 3);
    EXPECT_FALSE(run.declared.claim.lower);
    EXPECT_FALSE(run.declared.steps);
  }
}

TEST(Summary, OfARunThatWentOnAfterItsEndHasNoEnd) {
  const Folder folder;
  const MadeUpRun made_up{.steps = 15, .ended = "interrupted"};
  made_up.write(folder / "run");
  const run::TracePosition end = run::verify_trace(folder / "run" / "trace.jsonl");
  run::TraceWriter::resume(folder / "run" / "trace.jsonl", end);
  const RunSummary run = summarize(folder / "run");
  EXPECT_EQ(run.declared.ended, Ended::kUnfinished);
  EXPECT_EQ(run.declared.claim.upper, 3);
  ASSERT_EQ(run.observed.happenings.size(), 1u);
  EXPECT_EQ(run.observed.happenings[0].kind, "resumed");
}

TEST(Summary, OfStepsExecutedAgainShowsThemOnceAndKeepsWhatTheyCost) {
  const Folder folder;
  const auto path = folder.path() / "run" / "trace.jsonl";
  MadeUpRun{.steps = 15, .ended = ""}.write(folder / "run");
  const run::TracePosition end = run::verify_trace(path);
  run::TraceWriter trace = run::TraceWriter::extend(path, end, cbor::map({{"t", 10u}}));
  const auto again = [&](std::uint64_t t, double spent) {
    trace.append("iter", cbor::map({{"t", t},
                                    {"cumulative_epsilon_after", spent},
                                    {"noise_scale_sigma", 2.0},
                                    {"effective_noise_multiplier", 2.0}}));
  };
  again(10, 2.5);
  const RunSummary run = summarize(folder / "run");
  EXPECT_EQ(run.observed.steps, 11u);
  EXPECT_EQ(run.observed.epsilon.size(), 12u);
  EXPECT_EQ(run.observed.epsilon.back().value, 2.5);
  EXPECT_EQ(run.observed.evaluations.size(), 1u);
  again(11, 2.4);
  EXPECT_THROW(summarize(folder / "run"), Error);
}

TEST(Summary, OfAKilledRunLeavesOutALineCutShort) {
  const Folder folder;
  MadeUpRun{.steps = 15, .ended = ""}.write(folder / "run");
  std::ofstream(folder.path() / "run" / "trace.jsonl", std::ios::app) << "{\"kind\":\"it";
  EXPECT_EQ(summarize(folder / "run").observed.steps, 15u);
}

TEST(Summary, NeedsNoEvaluations) {
  const RunSummary run = summary_of({.evaluations = false});
  EXPECT_FALSE(run.observed.accuracy);
  EXPECT_TRUE(run.observed.evaluations.empty());
}

TEST(Summary, ReadsEveryGoldenTrace) {
  int read = 0;
  for (const auto& file : std::filesystem::directory_iterator(DISCREET_GOLDEN)) {
    if (file.path().extension() != ".jsonl") continue;
    // The configuration that a golden trace names is not beside it: such a pair is refused.
    const Folder folder;
    MadeUpRun{}.write(folder / "run");
    std::filesystem::copy_file(file.path(), folder.path() / "run" / "trace.jsonl",
                               std::filesystem::copy_options::overwrite_existing);
    try {
      summarize(folder / "run");
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_NE(error.sentence().find("config.yaml has the hash"), std::string::npos);
    }
    ++read;
  }
  EXPECT_GT(read, 10);
}

TEST(Summary, RefusesAnAlteredTraceAndNamesTheLine) {
  const Folder folder;
  MadeUpRun{}.write(folder / "run");
  const auto path = folder.path() / "run" / "trace.jsonl";
  const Bytes bytes = read_file(path);
  std::string text(bytes.begin(), bytes.end());
  const std::size_t at = text.find("\"norm_p95\":");
  text[at + 11] = '9';
  write_atomically(path, bytes_of(text));
  try {
    summarize(folder / "run");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    EXPECT_NE(error.sentence().find("line 3"), std::string::npos) << error.sentence();
  }
}

TEST(Summary, RefusesAClaimThatIsNotThatOfTheRun) {
  const auto interval = [](double lower, double upper) {
    return cbor::map({{"lower", lower}, {"upper", upper}});
  };
  const auto code = ErrorCode::kMalformed;
  EXPECT_EQ(refusal({.change = set("run_end", "epsilon", interval(1, 2.6))}, "less than"), code);
  EXPECT_EQ(refusal({.change = set("run_end", "epsilon", interval(1, 3.1))}, "budget"), code);
  EXPECT_EQ(refusal({.change = set("run_end", "epsilon", interval(2.8, 2.7))}, "epsilon"), code);
  EXPECT_EQ(refusal({.change = set("run_end", "delta", 1e-4)}, "delta"), code);
  EXPECT_EQ(refusal({.change = set("run_end", "adjacency", "replace_one")}, "adjacency"), code);
  EXPECT_EQ(refusal({.change = set("run_end", "ended", "well")}, "ended"), code);
  EXPECT_EQ(refusal({.change = set("iter", "t", 3u)}, "t is not later"), code);
  EXPECT_EQ(refusal({.change = set("iter", "norm_p50", "much")}, "norm_p50"), code);
  EXPECT_EQ(refusal({.change = set("run_header", "config_hash", std::string(64, '0'))}, "hash"),
            code);
  EXPECT_EQ(refusal({.secure = false, .change = set("run_header", "not_private", cbor::array({}))},
                    "not private"),
            code);
}

TEST(Summary, SaysWhatIsMissing) {
  const Folder folder;
  std::filesystem::create_directory(folder / "other");
  for (const auto& [place, says] :
       {std::pair("nowhere", "cannot open"), std::pair("other", "is not a run")}) {
    try {
      summarize(folder / place);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
      EXPECT_NE(error.sentence().find(says), std::string::npos) << error.sentence();
    }
  }
}

}  // namespace
}  // namespace discreet::report
