// Every alteration of a ledger's file is found, or alters nothing that is read.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <random>

#include "discreet/base/error.h"
#include "discreet/base/sqlite.h"
#include "discreet/ledger/ledger_testing.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/verify.h"

namespace discreet::ledger {
namespace {

using namespace testing;

// All rows of all tables, as a reader sees them.
Digest rows_of(const std::filesystem::path& path) {
  Store store(path, Store::Mode::kRead);
  Sha256 all;
  const auto number = [&](std::uint64_t n) {
    all.update({reinterpret_cast<const std::uint8_t*>(&n), sizeof n});
  };
  Store::Leaves leaves(store, 0);
  for (Store::Leaf leaf; leaves.next(leaf);) {
    number(leaf.position);
    number(leaf.summarised);
    all.update(leaf.summarised ? ByteView(leaf.hash) : leaf.content);
  }
  std::uint64_t size = 0;
  while (const auto note = store.next_note(size)) {
    size = note->size;
    number(size);
    all.update(bytes_of(note->text));
  }
  Store::Openings openings(store);
  for (Store::Opening opening; openings.next(opening);) {
    number(opening.position);
    all.update(opening.descriptor).update(opening.signature);
  }
  return all.finish();
}

// 1,300 entries of every kind, a part of them summarised.
void build(const std::filesystem::path& path) {
  Ledger ledger = Ledger::create(path, header(), bytes_of("policy"), ledger_key());
  ledger.admit(contributions(0, 20, "sensitive", kToday + 10), {{{"EXPIRED", 2}}});
  ledger.admit(contributions(100, 350));
  ledger.reserve_epoch("run", 0, kToday, {terms("sensitive"), terms("public")});
  ledger.withdraw(std::vector{withdrawal(hash_of(contribution(101)), contributor_key()),
                              withdrawal(hash_of(contribution(999)), steward_key())});
  for (std::uint64_t epoch = 1; epoch < 4; ++epoch)
    ledger.reserve_epoch("run", epoch, kToday + 20, {terms("public")});
  ledger.summarise(kToday + 2000);
  ledger.release("run", sha256(bytes_of("a manifest")));
  ASSERT_GE(ledger.state().size(), 1000u);
}

// The same leaves with a row for each, so that SQL can get at one. How many are in a row means
// nothing.
void spread(const std::filesystem::path& path) {
  std::vector<Bytes> items;
  {
    Store store(path, Store::Mode::kRead);
    Store::Leaves leaves(store, 0);
    for (Store::Leaf leaf; leaves.next(leaf);)
      items.push_back(leaf.summarised ? cbor::encode(leaf.hash)
                                      : Bytes(leaf.content.begin(), leaf.content.end()));
  }
  Database db(path, Database::Mode::kWrite, "ledger");
  db.transact([&] {
    db.run("DELETE FROM leaf");
    Statement insert = db.prepare("INSERT INTO leaf VALUES(?1, ?2)");
    for (std::uint64_t i = 0; i < items.size(); ++i) insert.bind(1, i).bind(2, items[i]).once();
  });
}

const VerifyOptions kFast = [] {
  VerifyOptions options;
  options.attestations = false;  // their bytes are bound by the hash in their leaf
  return options;
}();

TEST(LedgerTamper, NoFlippedBitIsMissed) {
  const char* asked = std::getenv("DISCREET_FLIPS");
  const int flips = asked ? std::atoi(asked) : 1000;
  Folder folder;
  const auto path = folder / "l.db";
  build(path);
  ASSERT_TRUE(verify(path).ok) << verify(path).problem;
  const Digest rows = rows_of(path);
  const auto bits = 8 * std::filesystem::file_size(path);
  const int fd = open(path.c_str(), O_RDWR);
  std::mt19937_64 random(11);
  int missed = 0, harmless = 0;
  for (int i = 0; i < flips; ++i) {
    const std::uint64_t bit = random() % bits;
    const auto at = static_cast<off_t>(bit / 8);
    std::uint8_t byte = 0;
    ASSERT_EQ(pread(fd, &byte, 1, at), 1);
    const std::uint8_t flipped = byte ^ static_cast<std::uint8_t>(1 << bit % 8);
    ASSERT_EQ(pwrite(fd, &flipped, 1, at), 1);
    try {
      if (verify(path, kFast).ok) {
        ++harmless;
        if (rows_of(path) != rows) {
          ++missed;
          ADD_FAILURE() << "bit " << bit % 8 << " of byte " << at;
        }
      }
    } catch (const Error&) {  // the file cannot be read at all: found
    }
    ASSERT_EQ(pwrite(fd, &byte, 1, at), 1);
  }
  close(fd);
  EXPECT_EQ(missed, 0);
  EXPECT_LT(harmless, flips / 3);  // most bits of the file mean something
  RecordProperty("harmless", harmless);
  EXPECT_TRUE(verify(path).ok);
}

TEST(LedgerTamper, NoRowIsDroppedDoubledSwappedOrForged) {
  Folder folder;
  const auto whole = folder / "whole.db", path = folder / "l.db";
  build(whole);
  std::uint64_t size = 0;
  {
    Store store(whole, Store::Mode::kRead);
    size = store.last_note()->size;
  }
  const Digest rows = rows_of(whole);
  spread(whole);
  ASSERT_TRUE(verify(whole).ok) << verify(whole).problem;
  ASSERT_EQ(rows_of(whole), rows);
  const auto altered = [&](const std::string& what, const std::vector<std::string>& sql) {
    std::filesystem::copy_file(whole, path, std::filesystem::copy_options::overwrite_existing);
    {
      Database db(path, Database::Mode::kWrite, "ledger");
      for (const std::string& line : sql) db.run(line.c_str());
    }
    const Verification found = verify(path);
    EXPECT_FALSE(found.ok) << what;
    return found;
  };
  const auto n = [](std::uint64_t number) { return std::to_string(number); };
  const std::string shift_down = "UPDATE leaf SET position = -position WHERE position > ";
  for (const std::uint64_t at :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}, std::uint64_t{40},
        std::uint64_t{290}, std::uint64_t{600}, size - 1}) {
    const Verification gap = altered("dropped", {"DELETE FROM leaf WHERE position = " + n(at)});
    if (at != size - 1) {
      EXPECT_EQ(gap.entry, at);
    }
    altered("dropped and closed up",
            {"DELETE FROM leaf WHERE position = " + n(at), shift_down + n(at),
             "UPDATE leaf SET position = -position - 1 WHERE position < 0"});
    altered("doubled",
            {shift_down + n(at), "UPDATE leaf SET position = 1 - position WHERE position < 0",
             "INSERT INTO leaf SELECT position + 1, items FROM leaf WHERE position = " + n(at)});
    if (at + 1 < size)
      altered("swapped", {"UPDATE leaf SET position = -1 WHERE position = " + n(at),
                          "UPDATE leaf SET position = " + n(at) + " WHERE position = " + n(at + 1),
                          "UPDATE leaf SET position = " + n(at + 1) + " WHERE position = -1"});
    altered("cut off", {"DELETE FROM leaf WHERE position >= " + n(at)});
    altered("made to look summarised",
            {"UPDATE leaf SET items = CAST(x'5820' || zeroblob(32) AS BLOB) WHERE position = " +
             n(at)});
    altered("emptied", {"UPDATE leaf SET items = zeroblob(0) WHERE position = " + n(at)});
    altered("cut short", {"UPDATE leaf SET items = substr(items, 1, length(items) - 1) WHERE "
                          "position = " +
                          n(at)});
    altered("doubled within its row",
            {"UPDATE leaf SET items = CAST(items || items AS BLOB) WHERE position = " + n(at)});
  }
  altered("appended",
          {"INSERT INTO leaf SELECT " + n(size) + ", items FROM leaf WHERE position = 40"});
  // Every note is bound, not just the last.
  {
    Store store(whole, Store::Mode::kRead);
    std::uint64_t last = 0;
    while (const auto note = store.next_note(last)) {
      last = note->size;
      altered("a note dropped", {"DELETE FROM checkpoint WHERE size = " + n(note->size)});
      const std::string forged = sign_note(read_unverified(note->text), key(66));
      EXPECT_EQ(altered("a note forged", {"UPDATE checkpoint SET note = '" + forged +
                                          "' WHERE size = " + n(note->size)})
                    .kind,
                "signature");
      altered("a note with another line", {"UPDATE checkpoint SET note = note || substr(note, "
                                           "instr(note, char(8212))) WHERE size = " +
                                           n(note->size)});
    }
  }
  altered("the file rolled back with its notes",
          {"DELETE FROM leaf WHERE position >= 290", "DELETE FROM checkpoint WHERE size > 290"});
  altered("an opening dropped", {"DELETE FROM opening WHERE position = 100"});
  altered("an opening altered",
          {"UPDATE opening SET descriptor = zeroblob(9) WHERE position = 100"});
  altered("a signature altered",
          {"UPDATE opening SET signature = zeroblob(9) WHERE position = 100"});
  altered("an opening too many", {"INSERT INTO opening VALUES(999999, x'00', x'00')"});
  altered("an opening of no admission", {"INSERT INTO opening VALUES(600, x'00', x'00')"});
  altered("an opening before all", {"INSERT INTO opening VALUES(0, x'00', x'00')"});
  altered("a table too many", {"CREATE TABLE more(x)"});
  altered("a view in place of a table",
          {"ALTER TABLE leaf RENAME TO l", "CREATE VIEW leaf AS SELECT * FROM l"});
  altered("another application", {"PRAGMA application_id = 1"});
  altered("nothing", {"DELETE FROM leaf", "DELETE FROM checkpoint", "DELETE FROM opening"});
}

TEST(LedgerTamper, NamesTheEntryThatIsWrong) {
  Folder folder;
  const auto path = folder / "l.db";
  build(path);
  spread(path);
  // A use whose spend was lowered: its own rule finds it, before the tree does.
  Database db(path, Database::Mode::kWrite, "ledger");
  std::uint64_t position = 0;
  {
    Statement rows = db.prepare(
        "SELECT position, items FROM leaf WHERE substr(items, 1, 1) <> x'58' ORDER BY position "
        "DESC");
    while (rows.step()) {
      const Entry entry = decode_entry(rows.bytes(1));
      if (const auto* use = std::get_if<Use>(&entry)) {
        position = rows.number(0);
        Use less = *use;
        less.spend -= 5;
        const Bytes bytes = encode(less);
        rows.reset();
        db.prepare("UPDATE leaf SET items = ?2 WHERE position = ?1")
            .bind(1, position)
            .bind(2, bytes)
            .once();
        break;
      }
    }
  }
  const Verification found = verify(path);
  EXPECT_EQ(found.kind, "entry");
  EXPECT_EQ(found.entry, position);
  EXPECT_NE(found.problem.find("rule 9"), std::string::npos) << found.problem;
}

// A writer drops what no note covers, row by row: a row that extended beyond a note would hide it.
TEST(LedgerTamper, NoRowGoesOnBeyondACheckpoint) {
  Folder folder;
  const auto path = folder / "l.db";
  build(path);
  std::uint64_t size = 0;
  {
    Store store(path, Store::Mode::kRead);
    size = store.next_note(store.next_note(0)->size)->size;
  }
  const std::string at = std::to_string(size);
  Database db(path, Database::Mode::kWrite, "ledger");
  db.run(("UPDATE leaf SET items = CAST(items || (SELECT items FROM leaf WHERE position = " + at +
          ") AS BLOB) WHERE position = (SELECT max(position) FROM leaf WHERE position < " + at +
          ")")
             .c_str());
  db.run(("DELETE FROM leaf WHERE position = " + at).c_str());
  const Verification found = verify(path);
  EXPECT_FALSE(found.ok);
  EXPECT_NE(found.problem.find("beyond a checkpoint"), std::string::npos) << found.problem;
  EXPECT_THROW(Ledger::open(path, ledger_key()), Error);
}

TEST(LedgerTamper, NoTruncatedFileVerifiesOrCrashes) {
  Folder folder;
  const auto whole = folder / "whole.db", path = folder / "l.db";
  build(whole);
  const auto size = std::filesystem::file_size(whole);
  for (std::uintmax_t at = 0; at < size; at += 1 + size / 150) {
    std::filesystem::copy_file(whole, path, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(path, at);
    try {
      EXPECT_FALSE(verify(path, kFast).ok) << at;
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace discreet::ledger
