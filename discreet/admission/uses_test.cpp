#include "discreet/admission/uses.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "discreet/base/error.h"

namespace discreet::admission {
namespace {

class Uses : public ::testing::Test {
 protected:
  Uses() {
    std::string name = (std::filesystem::temp_directory_path() / "discreet-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ / "uses.db";
  }
  ~Uses() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_, path_;
};

Digest id(std::uint8_t number) {
  Digest out{};
  out[0] = number;
  return out;
}

bool take(UseStore& store, std::uint8_t run, std::uint64_t step, std::uint8_t descriptor,
          std::uint64_t cap, std::uint64_t uses = 1) {
  const UseStore::Claim claim{id(descriptor), uses, cap};
  return store.reserve(id(run), step, {&claim, 1}).front() != 0;
}

TEST_F(Uses, TheUseAfterTheLastIsRefusedAcrossRuns) {
  for (std::uint8_t run = 1; run <= 3; ++run) {
    UseStore store(path_);  // opened again by every run
    EXPECT_TRUE(take(store, run, 0, 7, 6));
    EXPECT_TRUE(take(store, run, 1, 7, 6));
    EXPECT_EQ(store.used(id(7)), 2u * run);
  }
  UseStore store(path_);
  for (std::uint8_t run = 1; run <= 9; ++run) EXPECT_FALSE(take(store, run, 2, 7, 6));
  EXPECT_EQ(store.used(id(7)), 6u);
  EXPECT_TRUE(take(store, 1, 2, 8, 1)) << "another contribution has its own";
}

TEST_F(Uses, AStepThatIsExecutedAgainReservesNothing) {
  const std::vector<UseStore::Claim> claims = {{id(1), 1, 1}, {id(2), 3, 2}, {id(3), 2, 2}};
  const std::vector<std::uint8_t> expected = {1, 0, 1};
  for (int i = 0; i < 3; ++i) {
    UseStore store(path_);
    EXPECT_EQ(store.reserve(id(1), 5, claims), expected);
    EXPECT_EQ(store.used(id(1)), 1u);
    EXPECT_EQ(store.used(id(2)), 0u);
  }
  UseStore store(path_);
  EXPECT_FALSE(take(store, 1, 6, 1, 1)) << "another step is another use";
  EXPECT_FALSE(take(store, 2, 5, 1, 1)) << "and so is another run";
}

TEST_F(Uses, ClaimsThatContradictEarlierOnesAreRefusedAndReserveNothing) {
  UseStore store(path_);
  EXPECT_TRUE(take(store, 1, 0, 1, 5));
  EXPECT_THROW(take(store, 1, 1, 1, 6), Error) << "another cap";
  EXPECT_THROW(take(store, 1, 0, 1, 5, 2), Error) << "other uses in the same step";
  EXPECT_THROW(take(store, 1, 1, 1, 5, 0), Error);
  const std::vector<UseStore::Claim> twice = {{id(9), 1, 5}, {id(9), 1, 5}};
  EXPECT_THROW(store.reserve(id(1), 3, twice), Error);
  const std::vector<UseStore::Claim> half = {{id(8), 1, 5}, {id(1), 1, 6}};
  EXPECT_THROW(store.reserve(id(1), 3, half), Error);
  EXPECT_EQ(store.used(id(8)), 0u) << "all or nothing";
  EXPECT_EQ(store.used(id(1)), 1u);
}

TEST_F(Uses, IsForItsOwnerOnly) {
  const auto mask = ::umask(0);
  { UseStore store(path_); }
  ::umask(mask);
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ::chmod(path_.c_str(), 0640);
  EXPECT_THROW(UseStore store(path_), Error);
}

TEST_F(Uses, OtherFilesAreRefused) {
  { std::ofstream(path_) << std::string(5000, 'x'); }
  ::chmod(path_.c_str(), 0600);
  try {
    UseStore store(path_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
  }
  EXPECT_THROW(UseStore(folder_ / "absent" / "uses.db"), Error);
}

TEST_F(Uses, TwoWritersTakeTurns) {
  { UseStore store(path_); }
  std::vector<std::jthread> writers;
  for (std::uint8_t run = 1; run <= 4; ++run)
    writers.emplace_back([&, run] {
      UseStore store(path_);
      for (std::uint64_t step = 0; step < 10; ++step) take(store, run, step, 1, 25);
    });
  writers.clear();
  EXPECT_EQ(UseStore(path_).used(id(1)), 25u);
}

// A process reserves one use after another, reports each one afterwards, and is killed at some
// moment. The store has what it reported and at most one more, and repeating the last step charges
// nothing.
TEST_F(Uses, AKilledProcessHasReservedWhatItUsed) {
  constexpr std::uint64_t kCap = 1'000'000;
  { UseStore store(path_); }
  std::uint64_t before = 0;
  for (int round = 0; round < 12; ++round) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      UseStore store(path_);
      for (std::uint64_t step = 0;; ++step) {
        const bool granted = take(store, static_cast<std::uint8_t>(round + 1), step, 1, kCap);
        if (::write(pipe[1], &granted, 1) != 1) ::_exit(1);
      }
    }
    ::close(pipe[1]);
    char said = 0;
    std::uint64_t count = 0;
    const std::uint64_t kill_after = 1 + static_cast<std::uint64_t>(round) * 2;
    while (count < kill_after && ::read(pipe[0], &said, 1) == 1) ++count;
    std::this_thread::sleep_for(std::chrono::microseconds(137 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    while (::read(pipe[0], &said, 1) == 1) ++count;
    ::close(pipe[0]);
    UseStore store(path_);
    const std::uint64_t used = store.used(id(1)) - before;
    EXPECT_GE(used, count);
    EXPECT_LE(used, count + 1);
    for (std::uint64_t step = 0; step < used; ++step)
      EXPECT_TRUE(take(store, static_cast<std::uint8_t>(round + 1), step, 1, kCap));
    EXPECT_EQ(store.used(id(1)) - before, used);
    before += used;
  }
}

}  // namespace
}  // namespace discreet::admission
