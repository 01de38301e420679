// Verification needs memory for contributions, not for entries.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "discreet/ledger/ledger_testing.h"
#include "discreet/ledger/verify.h"

namespace discreet::ledger {
namespace {

using namespace testing;

// The sanitizers' own memory counts too: freed blocks that asan keeps (256 MB) and the space around
// blocks; tsan's shadow, four bytes and more for each byte.
#if defined(__SANITIZE_ADDRESS__)
constexpr double kMostMegabytes = 800;
#elif defined(__SANITIZE_THREAD__)
constexpr double kMostMegabytes = 1600;
#else
constexpr double kMostMegabytes = 200;
#endif

struct Finished {
  int status;
  double megabytes;  // resident, at most
  double seconds;
};

// In a process of its own.
Finished in_child(const std::function<bool()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) _exit(work() ? 0 : 1);
  int status = 0;
  rusage used{};
  wait4(child, &status, 0, &used);
  return {status, static_cast<double>(used.ru_maxrss) / 1024,
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

// DISCREET_ENTRIES: 10 million in the slow test.
TEST(LedgerSize, TenMillionEntriesVerifyInTwoHundredMegabytes) {
  const char* asked = std::getenv("DISCREET_ENTRIES");
  const std::uint64_t entries = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 200'000;
  constexpr std::uint32_t kContributions = 20'000;
  Folder folder;
  const auto path = folder / "l.db";
  const Finished written = in_child([&] {
    Ledger ledger = Ledger::create(path, header("rdp"), bytes_of("policy"), ledger_key());
    ledger.admit(contributions(0, kContributions));
    Terms t = terms();
    t.planned_steps = 100 * entries;
    for (std::uint64_t epoch = 0; ledger.state().size() < entries; ++epoch)
      ledger.reserve_epoch("run", epoch, kToday, {t});
    return true;
  });
  ASSERT_EQ(written.status, 0);
  const Finished verified = in_child([&] {
    VerifyOptions options;
    options.attestations = false;
    const Verification found = verify(path, options);
    return found.ok && found.size >= entries;
  });
  EXPECT_EQ(verified.status, 0);
  EXPECT_LT(verified.megabytes, kMostMegabytes);
  printf("%lu entries: verified in %.1f s, %.0f MB; written in %.1f s, %.0f MB; file %.0f MB\n",
         static_cast<unsigned long>(entries), verified.seconds, verified.megabytes, written.seconds,
         written.megabytes, static_cast<double>(std::filesystem::file_size(path)) / 1e6);
}

double resident_megabytes() {
  std::ifstream in("/proc/self/statm");
  long all = 0, resident = 0;
  in >> all >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

// A state with n events does not need n times the memory of one.
TEST(LedgerSize, AThousandDistinctEventsNeedAFewMegabytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer keeps freed memory";
#endif
  const Finished finished = in_child([] {
    const double before = resident_megabytes();
    Spends spends("gdp", 1e-5);
    Spends::StateId state = Spends::kNothing;
    for (int i = 0; i < 1000; ++i)
      state = spends.after(
          state, {accounting::Event(accounting::Gaussian{1000.0 + i}, accounting::NoSampling{},
                                    accounting::Adjacency::kZeroOut),
                  1});
    return spends.states() == 1001 && resident_megabytes() - before < 8;
  });
  EXPECT_EQ(finished.status, 0);
}

}  // namespace
}  // namespace discreet::ledger
