#include "discreet/base/sqlite.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "discreet/base/files.h"
#include "discreet/base/folder_testing.h"
#include "discreet/base/hash.h"
#include "discreet/base/sqlite_gaps_impl.h"

namespace discreet {
namespace {

// 16 bytes that occur nowhere else.
std::string name_of(std::uint64_t id) {
  const Digest digest = sha256(bytes_of(fmt::format("record {}", id)));
  return to_hex(ByteView(digest).first(8));
}

std::string content(std::uint64_t id, std::size_t length) {
  std::string text = name_of(id);
  while (text.size() < length) text += name_of(id);
  return text;
}

// Tables as those of a model store: by number, and an index by a name in random order.
TEST(Database, NoByteOfDeletedRowsStaysInTheFile) {
  const Folder folder;
  const auto path = folder / "file.db";
  write_atomically(path, bytes_of(""), Access::kOwner);
  constexpr std::uint64_t kRows = 5000, kDeleted = 3000;
  std::vector<std::uint64_t> order(kRows);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(1);
  std::shuffle(order.begin(), order.end(), random);
  {
    Database db(path, Database::Mode::kWrite, "file");
    db.run(
        "PRAGMA journal_mode=TRUNCATE; PRAGMA secure_delete=ON; PRAGMA synchronous=OFF; "
        "CREATE TABLE record(id INTEGER PRIMARY KEY, name TEXT NOT NULL, row BLOB NOT NULL) STRICT;"
        "CREATE INDEX by_name ON record(name)");
    db.transact([&] {
      for (std::uint64_t i = 0; i < kRows; ++i) {
        const std::string row = content(i, 16 + random() % (i % 100 == 0 ? 9000 : 300));
        db.prepare("INSERT INTO record VALUES(?1, ?2, ?3)")
            .bind(1, i)
            .bind_text(2, name_of(i))
            .bind(3, bytes_of(row))
            .once();
      }
    });
    for (std::uint64_t first = 0; first < kDeleted; first += 100)
      db.transact([&] {
        for (std::uint64_t i = first; i < first + 100; ++i)
          db.prepare("DELETE FROM record WHERE id = ?1").bind(1, order[i]).once();
      });
    auto check = db.prepare("PRAGMA integrity_check");
    ASSERT_TRUE(check.step());
    EXPECT_EQ(check.text(0), "ok");
    EXPECT_EQ(db.number("SELECT count(*) FROM record"), kRows - kDeleted);
  }
  const Bytes bytes = read_file(path);
  const std::string file(bytes.begin(), bytes.end());
  std::uint64_t found = 0;
  for (std::uint64_t i = 0; i < kRows; ++i) {
    const bool here = file.find(name_of(order[i])) != std::string::npos;
    if (i < kDeleted)
      found += here;
    else
      EXPECT_TRUE(here);
  }
  EXPECT_EQ(found, 0u) << "of " << kDeleted;
}

TEST(Database, OnlyWhatABTreePageDoesNotUseIsZeroed) {
  std::vector<std::uint8_t> page(512, 0xee);
  const std::vector<std::uint8_t> head = {13,   0x01, 0x80, 0,    2,    0x01,
                                          0x00, 0,    0x01, 0x00, 0x01, 0xf0};
  std::copy(head.begin(), head.end(), page.begin());
  const std::vector<std::uint8_t> block = {0, 0, 0, 16};  // the last free block, of 16 bytes
  std::copy(block.begin(), block.end(), page.begin() + 0x180);
  std::vector<std::uint8_t> expected = page;
  std::fill(expected.begin() + 12, expected.begin() + 0x100, 0);
  std::fill(expected.begin() + 0x184, expected.begin() + 0x190, 0);
  zero_gaps(page, false);
  EXPECT_EQ(page, expected);
  // Not of a B-tree, or not sound: as it was.
  for (const std::vector<std::uint8_t>& other : {std::vector<std::uint8_t>{0, 0, 0, 7, 0, 0, 1, 0},
                                                 {1},
                                                 {13, 0, 0, 0xff, 0xff, 0, 20, 0},
                                                 {13, 0, 0, 0, 1, 0xff, 0xff, 0}}) {
    std::vector<std::uint8_t> before(512, 0xee);
    std::copy(other.begin(), other.end(), before.begin());
    page = before;
    zero_gaps(page, false);
    EXPECT_EQ(page, before);
  }
}

}  // namespace
}  // namespace discreet
