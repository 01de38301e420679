// What the ledger flushes before it reports: SQLite's calls go through the two functions below.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "discreet/ledger/ledger_testing.h"

namespace {

std::vector<std::string> flushed;  // NOLINT: the suffix of each file's name, in order

int record(long call, int file) {
  std::error_code ignored;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), ignored);
  flushed.push_back(path.extension());
  return static_cast<int>(syscall(call, file));
}

}  // namespace

extern "C" {
[[gnu::visibility("default")]] int fsync(int file) { return record(SYS_fsync, file); }
[[gnu::visibility("default")]] int fdatasync(int file) { return record(SYS_fdatasync, file); }
}

namespace discreet::ledger {
namespace {

using namespace testing;

TEST(LedgerFlush, EveryCommitIsOnDiskBeforeItIsReported) {
  Folder folder;
  Ledger ledger = Ledger::create(folder / "l.db", header(), bytes_of("policy"), ledger_key());
  flushed.clear();
  ledger.admit(contributions(0, 3));
  const std::vector<std::string> seen = flushed;
  // synchronous=FULL: the pages of the rollback journal, then its header, then the database. A
  // weaker mode flushes the journal once, or nothing.
  const auto database = std::ranges::find(seen, ".db");
  ASSERT_NE(database, seen.end());
  EXPECT_EQ(std::count(seen.begin(), database, ".db-journal"), 2);
  EXPECT_EQ(std::ranges::count(seen, ".db"), 2) << "the leaves, then the note that signs them";
  EXPECT_EQ(std::ranges::count(seen, ".db-journal"), 4);
  EXPECT_EQ(seen.back(), ".db");
}

}  // namespace
}  // namespace discreet::ledger
