#include "discreet/run/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "discreet/base/error.h"
#include "discreet/run/folder_testing.h"

namespace discreet::run {
namespace {

std::size_t entries(const Folder& folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder.path()), {}));
}

TEST(Files, ReadBackWhatWasWritten) {
  const Folder folder;
  const Bytes bytes(3'000'000, 7);
  write_atomically(folder / "a", bytes);
  EXPECT_EQ(read_file(folder / "a"), bytes);
  write_atomically(folder / "a", Bytes{});
  EXPECT_TRUE(read_file(folder / "a").empty());
  EXPECT_EQ(entries(folder), 1u);
}

TEST(Files, OfTheOwnerAreReadableByNobodyElse) {
  const Folder folder;
  write_atomically(folder / "a", Bytes{1}, Access::kOwner);
  struct stat status {};
  ASSERT_EQ(::stat((folder / "a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(Files, AreAsTheyWereWhenTheDiskIsFull) {
  const Folder folder;
  write_atomically(folder / "a", Bytes{1, 2, 3});
  {
    const FullDisk full(1000);
    try {
      write_atomically(folder / "a", Bytes(5000, 9));
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIoError);
      EXPECT_NE(error.sentence().find("a."), std::string::npos);
    }
  }
  EXPECT_EQ(read_file(folder / "a"), (Bytes{1, 2, 3}));
  EXPECT_EQ(entries(folder), 1u);
}

TEST(Files, AreOldOrNewWhenTheProcessIsKilledWhileWriting) {
  const Folder folder;
  const Bytes old_bytes(2'000'000, 1), new_bytes(2'000'000, 2);
  write_atomically(folder / "a", old_bytes);
  for (int delay = 0; delay < 20; ++delay) {
    const pid_t child = ::fork();
    if (child == 0) {
      while (true) write_atomically(folder / "a", new_bytes);
    }
    ::usleep(static_cast<useconds_t>(500 * delay));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const Bytes seen = read_file(folder / "a");
    ASSERT_TRUE(seen == old_bytes || seen == new_bytes);
  }
}

TEST(Files, SayWhichPathAndWhy) {
  const Folder folder;
  for (const auto& attempt :
       {std::function<void()>([&] { read_file(folder / "missing"); }),
        std::function<void()>([&] { read_file(folder.path()); }),
        std::function<void()>([&] { write_atomically(folder / "no/such/folder", Bytes{1}); })}) {
    try {
      attempt();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIoError);
      EXPECT_NE(error.sentence().find(folder.path().string()), std::string::npos);
    }
  }
  write_atomically(folder / "big", Bytes(100));
  EXPECT_THROW(read_file(folder / "big", 99), Error);
}

}  // namespace
}  // namespace discreet::run
