// Killed at any moment, or out of disk: nothing is lost, nothing is spent twice.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <random>
#include <set>
#include <thread>

#include "discreet/base/error.h"
#include "discreet/unlearning/service/service_testing.h"

namespace discreet::unlearning {
namespace {

using namespace testing;

constexpr std::uint64_t kWarmUp = 600, kRounds = 30;

// Ten inserts per delete, until the stream ends; `done` is called for every delete that was
// acknowledged. Publishing has no request name that would make it happen once, so it happens where
// the stream is now.
void stream(const std::filesystem::path& store, ledger::Ledger ledger,
            const std::function<void(std::uint64_t)>& done) {
  Service s(store, repeatable_noise());
  s.confirm(ledger);
  s.insert("warm-up", rows(0, kWarmUp));
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    s.insert("insert-" + std::to_string(i), rows(kWarmUp + 10 * i, kWarmUp + 10 * (i + 1)));
    const std::vector<std::string> who = {"subject-" + std::to_string(7 * i)};
    s.erase("delete-" + std::to_string(i), who, ledger, kToday);
    done(i);
    if (i % 5 != 4) continue;
    if (const auto now = s.status(); now.deletions == i + 1 && !now.published) s.publish();
  }
}

double spent(const Service& s) {
  if (const auto* erm = std::get_if<ErmEngine>(&s.learner())) return erm->budget().spent();
  const auto* pair = std::get_if<MemoryPair>(&s.learner());
  return pair == nullptr ? 0 : pair->odometer().budget().spent();
}

class ServiceCrash : public ::testing::TestWithParam<EngineOptions> {
 protected:
  using Clock = std::chrono::steady_clock;

  void SetUp() override {
    begin(straight_);
    const auto start = Clock::now();
    stream(straight_ / "model.db", open_ledger(straight_ / "ledger.db"), [](std::uint64_t) {});
    const auto ran = Clock::now();
    {
      const Service s(straight_ / "model.db", repeatable_noise());
      open_ledger(straight_ / "ledger.db");
    }
    opening_ = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - ran);
    running_ = std::chrono::duration_cast<std::chrono::microseconds>(ran - start);
  }

  void begin(const Folder& folder) const {
    Service::create(folder / "model.db", "m", GetParam());
    new_ledger(folder / "ledger.db");
  }

  // Runs the stream until it ends, killing it up to `most` times on the way; says how often.
  void kill_on_the_way(const Folder& killed, int most, int& kills) {
    begin(killed);
    std::set<std::uint64_t> acknowledged;
    for (bool ended = false; !ended;) {
      int pipe_ends[2];
      ASSERT_EQ(::pipe(pipe_ends), 0);
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        ::close(pipe_ends[0]);
        try {
          stream(killed / "model.db", open_ledger(killed / "ledger.db"), [&](std::uint64_t i) {
            if (::write(pipe_ends[1], &i, sizeof i) != sizeof i) ::_exit(4);
          });
        } catch (...) {
          ::_exit(3);
        }
        ::_exit(0);
      }
      ::close(pipe_ends[1]);
      if (kills < most) {  // a 25th of the stream further, on average
        std::this_thread::sleep_for(std::uniform_real_distribution<>(0, 2)(random_) *
                                    (opening_ + running_ / 25));
        ::kill(child, SIGKILL);
      }
      for (std::uint64_t i; ::read(pipe_ends[0], &i, sizeof i) == sizeof i;) acknowledged.insert(i);
      ::close(pipe_ends[0]);
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ended = !WIFSIGNALED(status);
      if (ended) {
        ASSERT_EQ(WEXITSTATUS(status), 0);
        continue;
      }
      ++kills;
      // Every delete that was acknowledged is there, with its receipt, at once.
      Service s(killed / "model.db", repeatable_noise());
      auto ledger = open_ledger(killed / "ledger.db");
      EXPECT_GE(ledger.state().next_deletion("m"), acknowledged.size());
      const auto live = s.rows();
      for (const std::uint64_t i : acknowledged) {
        EXPECT_TRUE(std::none_of(live.begin(), live.end(), [&](const Row& r) {
          return r.subject == "subject-" + std::to_string(7 * i);
        })) << i;
      }
    }
    EXPECT_EQ(acknowledged.size(), kRounds);
  }

  Folder straight_;
  std::chrono::microseconds opening_{}, running_{};
  std::mt19937 random_{5};
};

TEST_P(ServiceCrash, KilledAtFiftyRandomMomentsItEndsInTheSameState) {
  for (int kills = 0; kills < 50;) {
    Folder killed;
    ASSERT_NO_FATAL_FAILURE(kill_on_the_way(killed, 50, kills));
    Service s(killed / "model.db", repeatable_noise());
    const Service straight(straight_ / "model.db", repeatable_noise());
    EXPECT_EQ(s.state_digest(), straight.state_digest());
    EXPECT_EQ(spent(s), spent(straight)) << "nothing is spent twice";
    const auto ledger = open_ledger(killed / "ledger.db");
    EXPECT_EQ(ledger.state().next_deletion("m"), kRounds) << "one receipt each";
    EXPECT_EQ(ledger.state().counts().deletions, kRounds);
    EXPECT_EQ(s.status().deletions, kRounds);
    EXPECT_EQ(s.status().live, kWarmUp + 10 * kRounds - kRounds);
    if (std::holds_alternative<MemoryPair>(s.learner())) {
      EXPECT_GT(s.status().generation, 0u) << "the stream is long enough to exhaust the budget";
    } else if (std::holds_alternative<ErmEngine>(s.learner())) {
      EXPECT_GT(spent(s), 0);
    }
  }
}

std::string engine_of(const ::testing::TestParamInfo<EngineOptions>& of) {
  constexpr const char* names[] = {"Exact", "Erm", "Stream"};
  return names[of.param.index()];
}

INSTANTIATE_TEST_SUITE_P(Engines, ServiceCrash,
                         ::testing::Values(EngineOptions(exact_options()),
                                           EngineOptions(erm_options()),
                                           EngineOptions(stream_options())),
                         engine_of);

TEST(ServiceDisk, AFullDiskLosesNothingAndTheSameRequestGoesOn) {
  Folder folder;
  Service::create(folder / "model.db", "m", exact_options());
  { new_ledger(folder / "ledger.db"); }
  { Service(folder / "model.db").insert("all", rows(0, 100)); }
  const auto size = std::filesystem::file_size(folder / "model.db");
  // No file of the child may grow beyond what the store has: inserts fail in the middle.
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{size + 4096, size + 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      Service s(folder / "model.db");
      const Digest before = s.state_digest();
      try {
        s.insert("more", rows(100, 4000));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kIoError) ::_exit(4);
        // Rows that were committed before the disk was full are there; the rest is not.
        const std::uint64_t live = s.status().live;
        ::_exit((live - 100) % 512 == 0 && (live > 100 || s.state_digest() == before) ? 0 : 5);
      }
    } catch (...) {
      ::_exit(3);
    }
    ::_exit(2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  Service s(folder / "model.db");
  s.insert("more", rows(100, 4000));
  EXPECT_EQ(s.status().live, 4000u);
  Folder other;
  Service::create(other / "model.db", "m", exact_options());
  Service straight(other / "model.db");
  straight.insert("all", rows(0, 100));
  straight.insert("more", rows(100, 4000));
  EXPECT_EQ(s.state_digest(), straight.state_digest());
}

TEST(ServiceDisk, ADeleteIsDurableWithItsReceiptAfterThreeCommits) {
  Folder folder;
  Service::create(folder / "model.db", "m", exact_options());
  Service s(folder / "model.db");
  s.insert("all", rows(0, 100));
  auto ledger = new_ledger(folder / "ledger.db");
  const std::uint64_t before = s.commits(), notes = ledger.state().counts().notes;
  s.erase("d", std::vector<std::string>{"subject-1"}, ledger, kToday);
  EXPECT_EQ(s.commits() - before, 1u);
  // The ledger commits an entry and then its signature.
  EXPECT_EQ(ledger.state().counts().notes - notes, 1u);
}

TEST(ServiceDisk, AReceiptThatIsMissingIsWrittenByWhoComesNext) {
  Folder folder;
  Service::create(folder / "model.db", "m", exact_options());
  Service s(folder / "model.db");
  s.insert("all", rows(0, 10));
  auto ledger = new_ledger(folder / "ledger.db");
  const std::vector<std::string> who = {"subject-1"};
  // The ledger cannot write its journal: the records go, the receipt waits.
  std::filesystem::create_directory(folder / "ledger.db-journal");
  try {
    s.erase("d", who, ledger, kToday);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIoError);
    EXPECT_NE(error.sentence().find("repeat the same request"), std::string::npos);
  }
  EXPECT_EQ(s.status().live, 9u);
  EXPECT_EQ(s.status().unconfirmed, 1u);
  std::filesystem::remove(folder / "ledger.db-journal");
  EXPECT_EQ(s.erase("d", who, ledger, kToday).size(), 1u);
  EXPECT_EQ(ledger.state().next_deletion("m"), 1u);
  EXPECT_EQ(s.status().unconfirmed, 0u);
  EXPECT_EQ(s.confirm(ledger), 0u);
}

}  // namespace
}  // namespace discreet::unlearning
