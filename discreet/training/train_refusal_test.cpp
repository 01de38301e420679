#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "discreet/base/error.h"
#include "discreet/training/train.h"
#include "discreet/training/train_testing.h"

namespace discreet::training {
namespace {

namespace fs = std::filesystem;

TEST(Train, RefusesADirectoryThatHoldsARun) {
  const SmallRun run;
  run.train("a");
  const Error error = error_of([&] { run.train("a"); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
  EXPECT_NE(error.sentence().find("--resume"), std::string::npos);
}

TEST(Train, RefusesToResumeWhatDoesNotExist) {
  const SmallRun run;
  EXPECT_EQ(error_of([&] { run.train("a", true); }).code(), ErrorCode::kInvalidInput);
}

TEST(Train, RefusesAnotherConfigurationOnResumeNamingWhatDiffers) {
  SmallRun run;
  run.train("a");
  const std::string trace = run.read("a", "trace.jsonl");
  run.config.privacy.target_epsilon = 30;
  run.config.privacy.target_steps = 60;
  const Error error = error_of([&] { run.train("a", true); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
  EXPECT_NE(error.sentence().find("target_epsilon was 20.0 and is 30.0"), std::string::npos)
      << error.sentence();
  EXPECT_NE(error.sentence().find("target_steps was 30 and is 60"), std::string::npos);
  EXPECT_EQ(run.read("a", "trace.jsonl"), trace);
}

TEST(Train, RefusesAlteredDataOnResume) {
  const SmallRun run;
  run.train("a");
  const std::string trace = run.read("a", "trace.jsonl");
  run.write("train.csv", 199, 1);
  const Error error = error_of([&] { run.train("a", true); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
  EXPECT_NE(error.sentence().find("data"), std::string::npos);
  EXPECT_EQ(run.read("a", "trace.jsonl"), trace);
}

TEST(Train, RefusesAForeignCheckpoint) {
  const SmallRun run;
  run.train("a");
  run.train("b");
  fs::copy(run.folder / "b" / "checkpoint.cbor", run.folder / "a" / "checkpoint.cbor",
           fs::copy_options::overwrite_existing);
  EXPECT_EQ(error_of([&] { run.train("a", true); }).code(), ErrorCode::kMalformed);
}

TEST(Train, RefusesATraceThatWasAlteredOrIsNotRepeated) {
  const SmallRun run;
  run.train("a");
  run.train("b");
  fs::remove(run.folder / "a" / "checkpoint.cbor");
  fs::copy(run.folder / "b" / "trace.jsonl", run.folder / "a" / "trace.jsonl",
           fs::copy_options::overwrite_existing);
  EXPECT_THROW(run.train("a", true), Error);
}

TEST(Train, SecretWithoutItsTraceOrConfigurationIsNotUsedForOtherSettings) {
  SmallRun run;
  run.train("a");
  // The secret beside another noise: other streams altogether, not the same noise scaled.
  run.share_secret("a", "b");
  run.config.privacy.clip_norm = 2;
  run.train("b", true);
  const auto norms = [&](const char* name) {
    std::vector<double> out;
    for (const auto& line : lines_of(run.read(name, "trace.jsonl"), "iter"))
      out.push_back(line.at("norm_max").get<double>());
    return out;
  };
  EXPECT_NE(norms("a"), norms("b"));  // other coins too
}

TEST(Train, ResumesAfterADeathBeforeTheFirstLine) {
  const SmallRun run;
  run.train("whole");
  fs::create_directory(run.folder / "empty");
  EXPECT_EQ(run.train("empty", true).ended, Ended::kCompleted);
  // A key of which nothing was written yet.
  fs::create_directory(run.folder / "torn");
  std::ofstream(run.folder / "torn" / "secret.key").close();
  fs::permissions(run.folder / "torn" / "secret.key",
                  fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(run.train("torn", true).ended, Ended::kCompleted);
  // A header that was cut.
  run.share_secret("whole", "header");
  std::ofstream(run.folder / "header" / "trace.jsonl")
      << run.read("whole", "trace.jsonl").substr(0, 50);
  fs::copy(run.folder / "whole" / "config.yaml", run.folder / "header" / "config.yaml");
  run.train("header", true);
  expect_same_run(run, "whole", "header");
}

TEST(Train, RefusesATraceWithoutItsKeyOrConfiguration) {
  const SmallRun run;
  run.train("a");
  fs::rename(run.folder / "a" / "secret.key", run.folder / "key");
  EXPECT_EQ(error_of([&] { run.train("a", true); }).code(), ErrorCode::kInvalidInput);
  EXPECT_FALSE(fs::exists(run.folder / "a" / "secret.key"));
  fs::rename(run.folder / "key", run.folder / "a" / "secret.key");
  fs::remove(run.folder / "a" / "config.yaml");
  EXPECT_EQ(error_of([&] { run.train("a", true); }).code(), ErrorCode::kInvalidInput);
}

TEST(Train, RefusesAModelOrCheckpointWithoutItsTrace) {
  const SmallRun run;
  run.train("a");
  fs::remove(run.folder / "a" / "trace.jsonl");
  EXPECT_EQ(error_of([&] { run.train("a", true); }).code(), ErrorCode::kInvalidInput);
  fs::remove(run.folder / "a" / "checkpoint.cbor");
  EXPECT_EQ(error_of([&] { run.train("a", true); }).code(), ErrorCode::kInvalidInput);
}

TEST(Train, FullDiskLeavesTheLastCheckpointAndTheRunGoesOn) {
  const SmallRun run;
  run.train("whole");
  run.share_secret("whole", "full");
  TrainOptions options = run.options("full");
  options.resume = true;
  {
    const FullDisk full(16000);  // about twelve steps of trace
    EXPECT_EQ(error_of([&] { training::train(run.resolved(), options); }).code(),
              ErrorCode::kIoError);
  }
  EXPECT_TRUE(fs::exists(run.folder / "full" / "checkpoint.cbor"));
  run.train("full", true);
  expect_same_run(run, "whole", "full");
}

TEST(Train, OneProcessAtATime) {
  const SmallRun run;
  TrainOptions options = run.options("a");
  bool tried = false;
  options.progress = [&](const Progress&) {
    if (tried) return;
    tried = true;
    EXPECT_EQ(error_of([&] { run.train("a", true); }).code(), ErrorCode::kIoError);
  };
  training::train(run.resolved(), options);
  EXPECT_TRUE(tried);
}

// ---------------------------------------------------------------- the directory

// Otherwise the first run would put its model and seal into the second one's directory.
TEST(Train, WritesIntoNoDirectoryThatTookTheNameOfItsOwn) {
  SmallRun run;
  TrainOptions options = run.options("a");
  options.progress = [&](const Progress& p) {
    if (p.step != 10) return;
    fs::rename(run.folder / "a", run.folder / "moved");
    run.train("a");
  };
  const Error error = error_of([&] { train(run.resolved(), options); });
  EXPECT_EQ(error.code(), ErrorCode::kIoError);
  EXPECT_NE(error.sentence().find("was moved or replaced"), std::string::npos);
  const std::string model = run.read("a", "model.safetensors");
  EXPECT_EQ(run.train("a", true).ended, Ended::kCompleted) << "the second run is whole";
  EXPECT_EQ(run.read("a", "model.safetensors"), model);
  EXPECT_EQ(run.train("moved", true).ended, Ended::kCompleted) << "the first one continues";
}

TEST(Train, StopsOnlyAfterItRepeatedWhatAnEarlierProcessReleased) {
  SmallRun run;
  run.config.run.checkpoint_every = 1'000;
  run.train("whole");
  run.share_secret("whole", "a");
  TrainOptions options = run.options("a");
  options.resume = true;  // the directory has a key
  options.progress = [](const Progress& p) {
    if (p.step == 20) throw Error(ErrorCode::kIoError, "test", "killed");
  };
  EXPECT_EQ(error_of([&] { train(run.resolved(), options); }).sentence(), "killed");
  const std::atomic<bool> stop = true;  // Ctrl-C before the first step
  options.stop = &stop;
  options.progress = {};
  const RunResult stopped = train(run.resolved(), options);
  EXPECT_EQ(stopped.ended, Ended::kInterrupted);
  EXPECT_EQ(stopped.steps, 20u);
  EXPECT_EQ(run.train("a", true).ended, Ended::kCompleted);
  EXPECT_EQ(run.read("a", "model.safetensors"), run.read("whole", "model.safetensors"));
}

// The user who wrote the file knows the noise. Only root can read such a file at all.
TEST(Train, TakesNoSecretThatBelongsToAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  SmallRun run;
  run.train("a");
  run.share_secret("a", "b");
  ASSERT_EQ(::chown((run.folder / "b" / "secret.key").c_str(), 65534, 65534), 0);
  const Error error = error_of([&] { run.train("b", true); });
  EXPECT_EQ(error.code(), ErrorCode::kIoError);
  EXPECT_NE(error.sentence().find("belongs to another user"), std::string::npos);
}

}  // namespace
}  // namespace discreet::training
