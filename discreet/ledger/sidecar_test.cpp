// What lies next to a ledger's file changes nothing that is read of it, and reading changes
// nothing.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "discreet/admission/uses.h"
#include "discreet/base/error.h"
#include "discreet/base/sqlite_guard_impl.h"
#include "discreet/ledger/contribution_trace.h"
#include "discreet/ledger/ledger_testing.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/proof.h"
#include "discreet/ledger/verify.h"

namespace discreet::ledger {
namespace {

using namespace testing;

std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_all(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void put32(std::string& out, std::uint32_t n) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(n >> shift);
}

constexpr std::string_view kMagic("\xd9\xd5\x05\xf9\x20\xa1\x63\xd7", 8);

// A journal of no pages, as SQLite writes them, that names a super-journal: SQLite plays it back
// and deletes what it names.
std::string hot_journal(const std::string& super_journal, std::uint32_t pages) {
  std::string out(kMagic);
  for (const std::uint32_t n : {0u, 7u, pages, 512u, 4096u}) put32(out, n);
  out.resize(512);
  if (super_journal.empty()) return out;
  put32(out, 0x40000000 / 4096 + 1);
  out += super_journal;
  std::uint32_t sum = 0;
  for (const char c : super_journal) sum += static_cast<std::uint32_t>(static_cast<signed char>(c));
  put32(out, static_cast<std::uint32_t>(super_journal.size()));
  put32(out, sum);
  return out.append(kMagic);
}

class LedgerSidecars : public ::testing::Test {
 protected:
  void SetUp() override {
    Ledger ledger = Ledger::create(path_, header(), bytes_of("policy"), ledger_key());
    ledger.admit(contributions(0, 5));
    write_all(victim_, "precious\n");
  }
  std::uint32_t pages() const {
    return static_cast<std::uint32_t>(std::filesystem::file_size(path_) / 4096);
  }
  // Every reader of ledgers from untrusted sources.
  void read_it() const {
    EXPECT_TRUE(verify(path_).ok) << verify(path_).problem;
    prove_entry(path_, 1);
    Store store(path_, Store::Mode::kRead);
    trace(store, hash_of(contribution(1)));
  }
  Folder folder_;
  const std::filesystem::path path_ = folder_ / "l.db", victim_ = folder_ / "victim",
                              journal_ = folder_ / "l.db-journal";
};

TEST_F(LedgerSidecars, AreNotPlayedBackByReadersNorIsAFileDeletedThatTheyName) {
  const std::string before = read_all(path_), journal = hot_journal(victim_.string(), 1);
  write_all(journal_, journal);
  read_it();
  EXPECT_EQ(read_all(victim_), "precious\n");
  EXPECT_EQ(read_all(path_), before);
  EXPECT_EQ(read_all(journal_), journal);
}

TEST_F(LedgerSidecars, OfTheWalKindAreNeitherReadNorMade) {
  for (const char* name : {"l.db-wal", "l.db-shm"}) write_all(folder_ / name, "some bytes");
  read_it();
  for (const char* name : {"l.db-wal", "l.db-shm"})
    EXPECT_EQ(read_all(folder_ / name), "some bytes");
}

TEST_F(LedgerSidecars, AFileInWalModeIsNotRead) {
  std::string bytes = read_all(path_);
  bytes[18] = bytes[19] = 2;
  write_all(path_, bytes);
  const Verification found = verify(path_);
  EXPECT_FALSE(found.ok);
  EXPECT_NE(found.problem.find("WAL"), std::string::npos) << found.problem;
  EXPECT_THROW(Ledger::open(path_, ledger_key()), Error);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "l.db-wal"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "l.db-shm"));
}

TEST_F(LedgerSidecars, AWriterTakesNoJournalThatNamesAnotherFile) {
  write_all(journal_, hot_journal(victim_.string(), 1));
  try {
    Ledger::open(path_, ledger_key());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    EXPECT_NE(error.sentence().find("super-journal"), std::string::npos) << error.sentence();
  }
  EXPECT_EQ(read_all(victim_), "precious\n");
  // SQLite does not play it back either, if the file appears after the check.
  sqlite3* db = nullptr;
  ASSERT_EQ(open_guarded(path_, Database::Mode::kWrite, 0, &db), SQLITE_OK);
  sqlite3_exec(db, "SELECT * FROM leaf", nullptr, nullptr, nullptr);
  sqlite3_close(db);
  EXPECT_EQ(read_all(victim_), "precious\n");
}

TEST_F(LedgerSidecars, AWriterFollowsNoLinkInPlaceOfAJournal) {
  std::filesystem::create_symlink(victim_, journal_);
  EXPECT_THROW(Ledger::open(path_, ledger_key()), Error);
  EXPECT_EQ(read_all(victim_), "precious\n");
}

TEST_F(LedgerSidecars, AWriterRollsBackWhatAKilledOneLeft) {
  write_all(journal_, hot_journal("", pages()));
  { Ledger::open(path_, ledger_key()); }
  EXPECT_FALSE(std::filesystem::exists(journal_));
  read_it();
}

TEST_F(LedgerSidecars, OfAStoreOfUsesNameNoFileToDeleteEither) {
  const auto uses = folder_ / "uses.db";
  { admission::UseStore store(uses); }
  write_all(folder_ / "uses.db-journal", hot_journal(victim_.string(), 1));
  EXPECT_THROW(admission::UseStore{uses}, Error);
  EXPECT_EQ(read_all(victim_), "precious\n");
}

TEST_F(LedgerSidecars, AReaderWaitsForAWriterInTheMiddleOfACommit) {
  Database writer(path_, Database::Mode::kWrite, "ledger");
  writer.run("BEGIN EXCLUSIVE");
  const pid_t child = fork();
  if (child == 0) {
    alarm(1);  // a reader that waits is ended by this
    static_cast<void>(verify(path_).ok);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  writer.run("ROLLBACK");
  read_it();
}

// The first of a writer's two commits: a leaf that no note covers. Returns the note to come.
Store::Note append_unsigned(Store& writer) {
  const Store::Note last = *writer.last_note();
  const Bytes leaf = encode(Signed{sha256(bytes_of(last.text))});
  Tree tree = tree_of(writer);
  tree.append(leaf_hash(leaf));
  Store::Batch batch;
  batch.add(leaf);
  writer.append(last.size, batch);
  return {tree.size(),
          sign_note({header().origin, tree.size(), tree.range(0, tree.size())}, ledger_key())};
}

TEST_F(LedgerSidecars, AReaderWaitsForAWriterBetweenItsTwoCommits) {
  Store writer(path_, Store::Mode::kWrite);
  for (const bool whole : {true, false}) {
    const Store::Note note = append_unsigned(writer);
    std::thread signer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      writer.sign(note);
    });
    if (whole) {
      const Verification found = verify(path_);
      EXPECT_TRUE(found.ok) << found.problem;
      EXPECT_EQ(found.size, note.size);
    } else {  // as a gate does
      Store reader(path_, Store::Mode::kRead);
      reader.begin_snapshot();
      Verification where;
      std::optional<Loaded> loaded;
      EXPECT_NO_THROW(loaded = load(reader, {}, false, where));
      EXPECT_TRUE(loaded && loaded->frontier.size() == note.size);
    }
    signer.join();
  }
}

TEST_F(LedgerSidecars, AReaderReportsAtOnceWhatADeadWriterDidNotSign) {
  {
    Store writer(path_, Store::Mode::kWrite);
    append_unsigned(writer);
  }
  const std::string before = read_all(path_);
  const auto begin = std::chrono::steady_clock::now();
  const Verification found = verify(path_);
  EXPECT_EQ(found.kind, "unsigned") << found.problem;
  EXPECT_LT(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(Store::kPatienceMs / 2));
  EXPECT_EQ(read_all(path_), before);
  EXPECT_FALSE(std::filesystem::exists(journal_));
}

TEST_F(LedgerSidecars, RowsBeforeTheFirstEntryAreNotIgnored) {
  const std::string whole = read_all(path_);
  for (const char* sql :
       {"INSERT INTO leaf SELECT -1, items FROM leaf WHERE position = 0",
        "INSERT INTO leaf VALUES(-9223372036854775808, x'00')",
        "INSERT INTO checkpoint VALUES(0, 'hidden')", "INSERT INTO checkpoint VALUES(-5, 'hidden')",
        "INSERT INTO opening VALUES(-5, x'00', x'00')"}) {
    write_all(path_, whole);
    { Database(path_, Database::Mode::kWrite, "ledger").run(sql); }
    EXPECT_FALSE(verify(path_).ok) << sql;
    EXPECT_THROW(Ledger::open(path_, ledger_key()), Error) << sql;
  }
}

}  // namespace
}  // namespace discreet::ledger
