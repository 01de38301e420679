// A writer that is killed, or whose disk is full, loses nothing that it reported.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <random>

#include "discreet/base/error.h"
#include "discreet/ledger/ledger_testing.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/verify.h"

namespace discreet::ledger {
namespace {

using namespace testing;

// Admits, reserves, withdraws and summarises without end; reports each note when it has returned.
[[noreturn]] void work(const std::filesystem::path& path, int report) {
  try {
    Ledger ledger = Ledger::open(path, ledger_key());
    for (;;) {
      const std::uint64_t epoch = ledger.state().next_epoch("run");
      const std::uint64_t now = kToday + epoch;
      const auto n = static_cast<std::uint32_t>(ledger.state().next_number());
      ledger.admit(contributions(n, n + 3, "public", now + 4));
      Terms t = terms();
      t.planned_steps = 100'000'000;
      ledger.reserve_epoch("run", epoch, now, {t});
      ledger.withdraw(
          std::vector{withdrawal(hash_of(contribution(n, "public", now + 4)), contributor_key())});
      if (epoch % 3 == 2) ledger.summarise(now + 1000);
      const std::string line = ledger.note() + '\0';
      if (write(report, line.data(), line.size()) < 0) _exit(1);
    }
  } catch (const std::exception& error) {
    fprintf(stderr, "%s\n", error.what());
    _exit(2);
  }
}

TEST(LedgerCrash, WhatWasReportedIsThereAfterSixtyKills) {
  Folder folder;
  const auto path = folder / "l.db";
  std::string last = Ledger::create(path, header(), bytes_of("policy"), ledger_key()).note();
  std::mt19937_64 random(5);
  int unsigned_tails = 0;
  std::uint64_t size = 0;
  for (int kill_number = 0; kill_number < 60; ++kill_number) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) work(path, ends[1]);
    close(ends[1]);
    // At random moments; every fifth writer gets to report something first, however slow the
    // machine.
    if (kill_number % 5 == 0) {
      pollfd first{ends[0], POLLIN, 0};
      poll(&first, 1, 20'000);
    }
    usleep(static_cast<useconds_t>(5000 + random() % 150000));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself";
    std::string reported;
    char buffer[4096];
    for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
      reported.append(buffer, static_cast<std::size_t>(got));
    close(ends[0]);
    if (const std::size_t end = reported.rfind('\0'); end != std::string::npos) {
      const std::size_t begin = end == 0 ? std::string::npos : reported.rfind('\0', end - 1);
      last = reported.substr(begin == std::string::npos ? 0 : begin + 1,
                             end - (begin == std::string::npos ? 0 : begin + 1));
    }
    // An auditor who looks now sees a sound ledger, or one with a tail that was never signed; or,
    // killed in the middle of a commit, what the next writer rolls back.
    VerifyOptions options;
    options.checkpoint = last;
    options.attestations = false;
    const Verification seen = verify(path, options);
    if (!seen.ok && !std::filesystem::exists(path.string() + "-journal")) {
      ASSERT_EQ(seen.kind, "unsigned") << seen.problem;
      ++unsigned_tails;
    }
    // The next writer continues from what was reported, or a little further.
    { Ledger ledger = Ledger::open(path, ledger_key(), last); }
    const Verification after = verify(path, options);
    ASSERT_TRUE(after.ok) << after.problem;
    ASSERT_GE(after.size, size);
    size = after.size;
  }
  EXPECT_GT(size, 100u);
  const Verification all = verify(path);
  EXPECT_TRUE(all.ok) << all.problem;
  EXPECT_GT(all.counts.withdrawals, 5u);
  EXPECT_GT(all.counts.summarised, 5u);
  RecordProperty("unsigned_tails", unsigned_tails);
}

TEST(LedgerCrash, AFullDiskIsSaidAndLeavesTheLedgerAsItWas) {
  Folder folder;
  const auto path = folder / "l.db";
  std::string note;
  {
    Ledger ledger = Ledger::create(path, header(), bytes_of("policy"), ledger_key());
    ledger.admit(contributions(0, 2));
    note = ledger.note();
  }
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    Ledger ledger = Ledger::open(path, ledger_key());
    const rlim_t most = std::filesystem::file_size(path) + 8192;
    const rlimit limit{most, most};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      ledger.admit(contributions(10, 200));
      _exit(1);
    } catch (const Error& error) {
      _exit(error.code() == ErrorCode::kIoError && ledger.note() == note ? 0 : 2);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(WIFEXITED(status));
  VerifyOptions options;
  options.checkpoint = note;
  const Verification found = verify(path, options);
  EXPECT_TRUE(found.ok || found.kind == "unsigned" ||
              std::filesystem::exists(path.string() + "-journal"))
      << found.problem;
  Ledger ledger = Ledger::open(path, ledger_key(), note);
  ledger.admit(contributions(10, 200));
  EXPECT_TRUE(verify(path, options).ok);
}

TEST(LedgerDisk, WhatIsReadBackBeforeSigningIsWhatTheDiskHolds) {
  Folder folder;
  const auto path = folder / "l.db";
  Store store(path, Store::Mode::kCreate);
  Store::Batch batch;
  batch.add(cbor::encode("as it was written"));
  store.append(0, batch);
  const auto leaf = [&] {
    Store::Leaves leaves(store, 0);
    Store::Leaf found;
    leaves.next(found);
    return std::string(cbor::decode(found.content).as_text());
  };
  EXPECT_EQ(leaf(), "as it was written");
  // A disk that holds something else; SQLite is not told.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  file.seekp(static_cast<std::streamoff>(bytes.find("as it was written")));
  file << "as it is no more!" << std::flush;
  EXPECT_EQ(leaf(), "as it was written");
  store.reread();
  EXPECT_EQ(leaf(), "as it is no more!");
}

}  // namespace
}  // namespace discreet::ledger
