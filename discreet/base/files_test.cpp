#include "discreet/base/files.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <set>
#include <sstream>

#include "discreet/base/error.h"
#include "discreet/base/folder_testing.h"

namespace discreet {
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
  using Attempt = std::pair<ErrorCode, std::function<void()>>;
  for (const auto& [code, attempt] :
       {Attempt(ErrorCode::kInvalidInput, [&] { read_file(folder / "missing"); }),
        Attempt(ErrorCode::kInvalidInput, [&] { read_file(folder.path()); }),
        Attempt(ErrorCode::kIoError,
                [&] { write_atomically(folder / "no/such/folder", Bytes{1}); })}) {
    try {
      attempt();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_NE(error.sentence().find(folder.path().string()), std::string::npos);
    }
  }
  write_atomically(folder / "big", Bytes(100));
  EXPECT_THROW(read_file(folder / "big", 99), Error);
}

unsigned mode_of(const std::filesystem::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

std::string text_of(const std::filesystem::path& path) {
  const Bytes bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

// Another user of the folder puts links or files where a predictable name would be.
TEST(Files, AreNotWrittenThroughWhatOthersPutInTheFolder) {
  const Folder folder;
  write_atomically(folder / "theirs", bytes_of("theirs"));
  for (const char* name : {"a.part", ".a.part", ".a.new", ".a.tmp"})
    std::filesystem::create_symlink(folder / "theirs", folder / name);
  std::filesystem::create_symlink(folder / "theirs",
                                  folder / fmt::format(".a.{}.part", ::getpid()).c_str());
  write_atomically(folder / "a", bytes_of("secret"), Access::kOwner);
  EXPECT_EQ(text_of(folder / "theirs"), "theirs");
  EXPECT_EQ(text_of(folder / "a"), "secret");
  EXPECT_EQ(mode_of(folder / "a"), 0600u);
  EXPECT_FALSE(std::filesystem::is_symlink(folder / "a"));
}

TEST(Files, ReplaceNothingButFiles) {
  const Folder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(write_atomically(folder / "pipe", Bytes{1}), Error);
  EXPECT_THROW(write_atomically(folder.path(), Bytes{1}), Error);
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
  EXPECT_EQ(entries(folder), 1u);
}

TEST(Files, ThatMustBeNewAreWrittenOnce) {
  const Folder folder;
  int written = 0;
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    try {
      write_new(folder / "key", Bytes(1000, static_cast<std::uint8_t>(i)), Access::kOwner);
      ::_exit(0);
    } catch (const Error& error) {
      ::_exit(error.code() == ErrorCode::kInvalidInput ? 1 : 2);
    }
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_NE(WEXITSTATUS(status), 2);
    written += WEXITSTATUS(status) == 0;
  }
  EXPECT_EQ(written, 1);
  EXPECT_EQ(entries(folder), 1u);
  EXPECT_EQ(mode_of(folder / "key"), 0600u);
}

TEST(Files, OfLinesHoldEveryLineThatProcessesAppendAtOnce) {
  const Folder folder;
  constexpr int kWriters = 8, kLines = 10;
  std::vector<pid_t> children;
  for (int i = 0; i < kWriters; ++i) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    for (int line = 0; line < kLines; ++line)
      append_lines(folder / "lines", fmt::format("{} {}\n", i, line));
    ::_exit(0);
  }
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  std::istringstream lines(text_of(folder / "lines"));
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);) EXPECT_TRUE(seen.insert(line).second) << line;
  EXPECT_EQ(seen.size(), std::size_t{kWriters * kLines});
  EXPECT_EQ(entries(folder), 1u);
}

TEST(Files, OfLinesHoldWholeLinesWhenTheProcessIsKilled) {
  const Folder folder;
  const std::string line(100'000, 'x');
  for (int delay = 0; delay < 30; ++delay) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const std::size_t before =
        std::filesystem::exists(folder / "lines") ? text_of(folder / "lines").size() : 0;
    const pid_t child = ::fork();
    if (child == 0) {
      while (true) {
        append_lines(folder / "lines", line + "\n");
        if (::write(ends[1], "1", 1) != 1) ::_exit(1);
      }
    }
    ::close(ends[1]);
    ::usleep(static_cast<useconds_t>(300 * delay));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    std::size_t reported = 0;
    for (char c = 0; ::read(ends[0], &c, 1) == 1;) ++reported;
    ::close(ends[0]);
    const std::size_t size =
        std::filesystem::exists(folder / "lines") ? text_of(folder / "lines").size() : 0;
    ASSERT_EQ(size % (line.size() + 1), 0u);
    ASSERT_GE(size, before + reported * (line.size() + 1));
    if (size > 4'000'000) std::filesystem::remove(folder / "lines");
  }
}

TEST(Files, ThatArePipesOrDevicesAreNotRead) {
  const Folder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(read_file(folder / "pipe"), Error);
  std::filesystem::create_symlink("/dev/zero", folder / "zero");
  EXPECT_THROW(read_file(folder / "zero"), Error);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "text", 4), 4);
  ::close(ends[1]);
  EXPECT_EQ(text_of(fmt::format("/dev/fd/{}", ends[0])), "text");
  ::close(ends[0]);
}

TEST(Files, OfLinesAreNotMadeWhereALinkToNothingPoints) {
  const Folder folder;
  std::filesystem::create_symlink(folder / "made", folder / "link");
  EXPECT_THROW(append_lines(folder / "link", "one\n"), Error);
  EXPECT_FALSE(std::filesystem::exists(folder / "made"));
}

TEST(Files, OfLinesKeepTheirModeAndTheLinkToThem) {
  const Folder folder;
  write_atomically(folder / "real", bytes_of("one"), Access::kOwner);
  std::filesystem::create_symlink(folder / "real", folder / "link");
  append_lines(folder / "link", "two\n");
  EXPECT_EQ(text_of(folder / "real"), "one\ntwo\n");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(mode_of(folder / "real"), 0600u);
  append_lines(folder / "new", "three\n", Access::kOwner);
  EXPECT_EQ(mode_of(folder / "new"), 0600u);
}

TEST(Files, OfConfidentialLinesAreTheOwnersOnlyAndNoLinks) {
  const Folder folder;
  const auto refuses = [&](const char* name, const char* why) {
    try {
      append_lines(folder / name, "two\n", Access::kOwner);
      return false;
    } catch (const Error& error) {
      return error.code() == ErrorCode::kInvalidInput &&
             error.sentence().find(why) != std::string::npos;
    }
  };
  write_atomically(folder / "real", bytes_of("one\n"), Access::kOwner);
  std::filesystem::create_symlink(folder / "real", folder / "link");
  EXPECT_TRUE(refuses("link", "symbolic link"));
  EXPECT_EQ(text_of(folder / "real"), "one\n");
  for (const unsigned mode : {0640u, 0604u, 0620u, 0601u}) {
    ASSERT_EQ(::chmod((folder / "real").c_str(), mode), 0);
    EXPECT_TRUE(refuses("real", "chmod 600")) << mode;
  }
  ASSERT_EQ(::chmod((folder / "real").c_str(), 0600), 0);
  append_lines(folder / "real", "two\n", Access::kOwner);
  EXPECT_EQ(text_of(folder / "real"), "one\ntwo\n");
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown((folder / "real").c_str(), 12345, 12345), 0);
    EXPECT_TRUE(refuses("real", "another user"));
  }
  EXPECT_EQ(entries(folder), 2u);
}

TEST(Files, OfLinesThatAreOpenedAheadAreWritableOrRefusedAndVanishIfUnused) {
  const Folder folder;
  { const LinesFile unused(folder / "lines", Access::kOwner, 1000); }
  EXPECT_EQ(entries(folder), 0u);
  {
    const FullDisk full(500);
    EXPECT_THROW(LinesFile(folder / "lines", Access::kOwner, 1000), Error);
  }
  EXPECT_THROW(LinesFile(folder / "no/such/folder", Access::kOwner), Error);
  EXPECT_THROW(LinesFile("/dev/full", Access::kOwner), Error);
  EXPECT_EQ(entries(folder), 0u);
  LinesFile(folder / "lines", Access::kOwner, 1000).append("one\n");
  { const LinesFile unused(folder / "lines", Access::kOwner, 1000); }
  EXPECT_EQ(text_of(folder / "lines"), "one\n");
  EXPECT_EQ(mode_of(folder / "lines"), 0600u);
  EXPECT_EQ(entries(folder), 1u);
}

}  // namespace
}  // namespace discreet
