#include "discreet/run/step_count.h"

#include <gtest/gtest.h>

#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/folder_testing.h"
#include "discreet/config/config_read.h"
#include "discreet/run/run_files.h"
#include "discreet/run/secret_key.h"

namespace discreet::run {
namespace {

namespace fs = std::filesystem;

Config config(const char* planned = "    target_steps: 50\n") {
  return load_config(std::string("security:\n  differential_privacy:\n    target_epsilon: 8\n"
                                 "    declared_size: 1000\n    effective_batch_size: 10\n"
                                 "    noise_multiplier: 1\n") +
                         planned,
                     "config.yaml")
      .config;
}

cbor::Value header() {
  return cbor::map({{"specification", "s"},
                    {"config_hash", "c"},
                    {"layout_hash", "l"},
                    {"data_commitment", "d"},
                    {"noise_generator", "g"},
                    {"environment", cbor::map({{"blas", "here"}})}});
}

std::string text_of(const fs::path& path) {
  const Bytes bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

void cut_lines(const fs::path& trace, int lines) {
  std::string text = text_of(trace);
  for (int i = 0; i < lines; ++i) text.resize(text.rfind('\n', text.size() - 2) + 1);
  write_atomically(trace, bytes_of(text));
}

// A run that was killed after so many steps.
struct Killed {
  explicit Killed(int steps, const Config& of = config()) {
    RunFiles files(folder / "run", of, false);
    files.begin_trace(header(), {});
    for (int t = 0; t < steps; ++t) files.append("iter", cbor::map({{"t", t}}));
    files.flush();
  }
  Folder folder;
  fs::path run = folder / "run";
};

TEST(StepCount, LinesThatAreCutOffAreStillCounted) {
  const Killed killed(7);
  EXPECT_EQ(RunFiles(killed.run, config(), true).steps_after({}, 0), 7u);
  cut_lines(killed.run / "trace.jsonl", 2);
  EXPECT_EQ(RunFiles(killed.run, config(), true).steps_after({}, 0), 7u);
  cut_lines(killed.run / "trace.jsonl", 5);
  EXPECT_EQ(RunFiles(killed.run, config(), true).steps_after({}, 0), 7u);
}

TEST(StepCount, WithoutItAllPlannedStepsAreCounted) {
  const Killed killed(7);
  fs::remove(killed.run / kStepCountFile);
  EXPECT_EQ(RunFiles(killed.run, config(), true).steps_after({}, 0), 50u);
  fs::remove(killed.run / "trace.seal");
  cut_lines(killed.run / "trace.jsonl", 4);
  EXPECT_EQ(RunFiles(killed.run, config(), true).steps_after({}, 0), 50u);
  const Killed unplanned(7, config(""));
  fs::remove(unplanned.run / kStepCountFile);
  EXPECT_THROW(static_cast<void>(RunFiles(unplanned.run, config(""), true).steps_after({}, 0)),
               Error);
}

TEST(StepCount, OfAnotherRunOrAlteredIsRejected) {
  const Killed killed(7), other(2);
  fs::copy_file(other.run / kStepCountFile, killed.run / kStepCountFile,
                fs::copy_options::overwrite_existing);
  EXPECT_THROW(static_cast<void>(RunFiles(killed.run, config(), true).steps_after({}, 0)), Error);
  const Killed edited(7);
  std::string text = text_of(edited.run / kStepCountFile);
  for (std::size_t line = 0; line < text.size(); line += text.size() / 2) text[line + 20] = '2';
  write_atomically(edited.run / kStepCountFile, bytes_of(text));
  EXPECT_THROW(static_cast<void>(RunFiles(edited.run, config(), true).steps_after({}, 0)), Error);
}

// What a kill in the middle of a write leaves: the start of the new line over the old one.
TEST(StepCount, AWriteThatWasCutOffLosesNoStep) {
  for (int steps = 1; steps <= 2; ++steps) {
    const Killed killed(steps);
    const auto whole = text_of(killed.run / kStepCountFile);
    StepCount(killed.run, load_secret(killed.run / "secret.key"), 0).write(steps + 1);
    const auto later = text_of(killed.run / kStepCountFile);
    for (std::size_t cut = 0; cut <= later.size(); cut += 9) {
      std::string torn = later.substr(0, cut);
      if (whole.size() > cut) torn += whole.substr(cut);
      write_atomically(killed.run / kStepCountFile, bytes_of(torn));
      const auto counted = StepCount::read(killed.run, load_secret(killed.run / "secret.key"));
      ASSERT_TRUE(counted);
      EXPECT_GE(*counted, static_cast<std::uint64_t>(steps)) << cut;
      EXPECT_LE(*counted, static_cast<std::uint64_t>(steps + 1)) << cut;
    }
  }
}

TEST(StepCount, ANewFileHasItsCountBeforeAnythingIsWritten) {
  const Killed killed(5);
  const auto secret = load_secret(killed.run / "secret.key");
  std::filesystem::remove(killed.run / kStepCountFile);
  const StepCount count(killed.run, secret, 7);  // killed here, it must not leave an empty file
  EXPECT_EQ(StepCount::read(killed.run, secret), 7u);
}

TEST(StepCount, ACountThatIsSetBackStaysSetBack) {
  const Killed killed(5);
  const auto secret = load_secret(killed.run / "secret.key");
  StepCount count(killed.run, secret, 0);
  for (const std::uint64_t n : {2, 3, 9, 4, 0, 1}) {
    count.write(n);
    EXPECT_EQ(StepCount::read(killed.run, secret), n);
  }
}

TEST(StepCount, TheSingleLineOfEarlierVersionsIsRead) {
  const Killed killed(0);
  const std::string text = text_of(killed.run / kStepCountFile);
  fs::resize_file(killed.run / kStepCountFile, text.find('\n') + 1);
  EXPECT_EQ(StepCount::read(killed.run, load_secret(killed.run / "secret.key")), 0u);
}

TEST(StepCount, GoesWithTheSealOfARunThatEnded) {
  const Killed killed(0);
  {
    RunFiles files(killed.run, config(), true);
    files.extend_trace({}, cbor::map({}));
    for (int t = 0; t < 3; ++t) files.append("iter", cbor::map({{"t", t}}));
    EXPECT_TRUE(fs::exists(killed.run / kStepCountFile));
    files.end(cbor::map({{"ended", "interrupted"}}));
  }
  EXPECT_FALSE(fs::exists(killed.run / kStepCountFile));
  EXPECT_EQ(RunFiles(killed.run, config(), true).steps_after({}, 0), 3u);
  // Resumed and killed: counted again.
  {
    RunFiles files(killed.run, config(), true);
    files.extend_trace({}, cbor::map({}));
    files.append("iter", cbor::map({{"t", 3}}));
    files.flush();
  }
  EXPECT_EQ(RunFiles(killed.run, config(), true).steps_after({}, 0), 4u);
  cut_lines(killed.run / "trace.jsonl", 1);
  EXPECT_EQ(RunFiles(killed.run, config(), true).steps_after({}, 0), 4u);
}

TEST(StepCount, ASealedEndThatWasPutBackHidesNoStep) {
  const Killed killed(7);
  {
    RunFiles files(killed.run, config(), true);
    files.begin_trace(header(), {});
    for (int t = 0; t < 7; ++t) files.append("iter", cbor::map({{"t", t}}));
    files.end(cbor::map({{"ended", "interrupted"}}));
  }
  const Bytes trace = read_file(killed.run / "trace.jsonl");
  const Bytes seal = read_file(killed.run / "trace.seal");
  {
    RunFiles files(killed.run, config(), true);
    files.begin_trace(header(), {});
    for (int t = 0; t < 12; ++t) files.append("iter", cbor::map({{"t", t}}));
    files.flush();
  }
  write_atomically(killed.run / "trace.jsonl", trace);
  write_atomically(killed.run / "trace.seal", seal);
  EXPECT_EQ(RunFiles(killed.run, config(), true).steps_after({}, 0), 12u);
}

TEST(StepCount, IsWrittenThroughNoLink) {
  for (const bool is_hard : {false, true}) {
    const Killed killed(3);
    write_atomically(killed.folder / "theirs", bytes_of("precious"));
    fs::remove(killed.run / kStepCountFile);
    const random::Key key = load_secret(killed.run / "secret.key");
    if (is_hard)
      fs::create_hard_link(killed.folder / "theirs", killed.run / kStepCountFile);
    else
      fs::create_symlink(killed.folder / "theirs", killed.run / kStepCountFile);
    EXPECT_THROW(StepCount(killed.run, key, 0), Error);
    EXPECT_EQ(text_of(killed.folder / "theirs"), "precious");
  }
  const Killed dangling(3);
  fs::remove(dangling.run / kStepCountFile);
  fs::create_symlink(dangling.folder / "made", dangling.run / kStepCountFile);
  EXPECT_THROW(StepCount(dangling.run, load_secret(dangling.run / "secret.key"), 0), Error);
  EXPECT_FALSE(fs::exists(dangling.folder / "made"));
}

// Executed again on the same bits, a run does not forget what an earlier process had released.
TEST(StepCount, NeverFallsWhileStepsAreExecutedAgain) {
  const Killed killed(7);
  {
    RunFiles files(killed.run, config(), true);
    files.begin_trace(header(), {});
    files.append("iter", cbor::map({{"t", 0}}));
  }
  cut_lines(killed.run / "trace.jsonl", 6);
  EXPECT_EQ(RunFiles(killed.run, config(), true).steps_after({}, 0), 7u);
}

}  // namespace
}  // namespace discreet::run
