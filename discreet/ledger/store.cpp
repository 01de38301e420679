#include "discreet/ledger/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/base/file_descriptor.h"
#include "discreet/base/sqlite.h"

namespace discreet::ledger {
namespace {

constexpr std::int64_t kApplication = 0x44534c31;  // "DSL1"
constexpr int kFileVersion = 2;
// A row is closed when it has so many bytes: a row for every leaf takes most of the time of an
// epoch.
constexpr std::size_t kRowBytes = 1 << 15;
// The head of a leaf hash as an item: 32 bytes.
constexpr std::uint8_t kHashHead[] = {0x58, 0x20};

constexpr std::string_view kTables[] = {
    "CREATE TABLE checkpoint(size INTEGER PRIMARY KEY, note TEXT NOT NULL) STRICT",
    "CREATE TABLE leaf(position INTEGER PRIMARY KEY, items BLOB NOT NULL) STRICT",
    "CREATE TABLE opening(position INTEGER PRIMARY KEY, descriptor BLOB NOT NULL, "
    "signature BLOB NOT NULL) STRICT",
};

constexpr const char* kOperator = "ledger";

void require_schema(Database& db) {
  if (db.number("PRAGMA application_id") != kApplication)
    malformed(kOperator,
              "the file is an SQLite database but not a ledger of discreet, or it is empty");
  if (db.number("PRAGMA user_version") != kFileVersion)
    malformed(kOperator, "the ledger has a file version that this build does not support");
  Statement rows = db.prepare("SELECT sql FROM sqlite_schema ORDER BY name");
  for (const std::string_view table : kTables)
    if (!rows.step() || rows.is_null(0) || rows.text(0) != table)
      malformed(kOperator, "the tables of the file are not those of a ledger");
  if (rows.step()) malformed(kOperator, "the file contains more than a ledger");
}

// Removes the first item of a row: all of it, if no item ends there.
ByteView take_item(ByteView& row) {
  const ByteView item = row.first(cbor::item_size(row).value_or(row.size()));
  row = row.subspan(item.size());
  return item;
}

bool is_hash(ByteView item) {
  return item.size() == std::size(kHashHead) + std::tuple_size_v<Digest> &&
         std::ranges::equal(item.first(std::size(kHashHead)), kHashHead);
}

// Throws for a file that cannot be created or opened, by errno.
[[noreturn]] void cannot_create(const std::filesystem::path& path) {
  const bool there = errno == EEXIST;
  fail(there ? ErrorCode::kInvalidInput : ErrorCode::kIoError, "ledger", "{}: {}", path.string(),
       there ? "the file already exists; a ledger is never overwritten" : strerror(errno));
}

}  // namespace

struct Store::Lock {
  int fd;
  Lock(const std::filesystem::path& path, bool create, int patience_ms)
      : fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL | O_NOFOLLOW : 0),
                  0644)) {
    if (fd < 0) cannot_create(path);
    constexpr int kPauseMs = 10;
    for (; flock(fd, LOCK_EX | LOCK_NB) != 0; patience_ms -= kPauseMs) {
      if (patience_ms > 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(kPauseMs));
        continue;
      }
      close(fd);
      io_error(kOperator, "{}: another process is writing to the ledger", path.string());
    }
  }
  ~Lock() { close(fd); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

// A reader's look at the writer's lock. It stays open until the database is closed: closing any
// descriptor of a file drops the locks that this process has on it (POSIX), SQLite's included.
struct Store::Probe {
  int fd;
  explicit Probe(const std::filesystem::path& path)
      : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Probe() {
    if (fd >= 0) close(fd);
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  bool is_refused() const {
    if (fd < 0) return false;
    if (flock(fd, LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK;
    flock(fd, LOCK_UN);
    return false;
  }
};

Store::Store(const std::filesystem::path& path, Mode mode, int patience_ms)
    : path_(path), mode_(mode) {
  if (mode_ != Mode::kRead)
    lock_ = std::make_unique<Lock>(path, mode == Mode::kCreate, patience_ms);
  if (mode_ == Mode::kRead && !std::filesystem::is_regular_file(path))
    io_error(kOperator, "{}: {}", path.string(),
             std::filesystem::is_directory(path) ? "this is a folder, not a file"
                                                 : "the file does not exist");
  db_ = open();
}

Store::~Store() { db_.reset(); }
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&& other) noexcept {
  db_ = std::move(other.db_);
  lock_ = std::move(other.lock_);
  probe_ = std::move(other.probe_);
  path_ = std::move(other.path_);
  mode_ = other.mode_;
  return *this;
}

std::unique_ptr<Database> Store::open() {
  auto db = std::make_unique<Database>(
      path_, mode_ == Mode::kRead ? Database::Mode::kRead : Database::Mode::kWrite, kOperator);
  db->run("PRAGMA cell_size_check=ON; PRAGMA mmap_size=0; PRAGMA cache_size=-16000");
  if (mode_ == Mode::kCreate) {
    db->run(fmt::format("BEGIN; PRAGMA application_id={}; PRAGMA user_version={}; {}; COMMIT",
                        kApplication, kFileVersion, fmt::join(kTables, "; "))
                .c_str());
    mode_ = Mode::kWrite;
  }
  require_schema(*db);
  if (mode_ == Mode::kWrite)
    db->run("PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL; PRAGMA secure_delete=ON");
  return db;
}

Store::Leaves::Leaves(Store& store, std::uint64_t begin)
    : rows_(std::make_unique<Statement>(store.db_->prepare(
          "SELECT position, items FROM leaf WHERE position >= coalesce((SELECT max(position) FROM "
          "leaf WHERE position <= ?1), ?1) ORDER BY position"))),
      begin_(begin) {
  rows_->bind(1, begin);
}
Store::Leaves::~Leaves() = default;

bool Store::Leaves::next(Leaf& leaf) {
  do {
    if (!read(leaf)) return false;
  } while (leaf.position < begin_);
  return true;
}

bool Store::Leaves::read(Leaf& leaf) {
  if (rest_.empty()) {
    if (!rows_->step()) return false;
    position_ = rows_->number(0);
    rest_ = rows_->bytes(1);
    if (rest_.empty()) malformed(kOperator, "a row of the file contains no leaf");
  }
  const ByteView item = take_item(rest_);
  leaf.position = position_++;
  leaf.ends_row = rest_.empty();
  leaf.summarised = is_hash(item);
  leaf.content = leaf.summarised ? ByteView() : item;
  if (leaf.summarised) std::ranges::copy(item.subspan(std::size(kHashHead)), leaf.hash.begin());
  return true;
}

std::optional<Store::Note> Store::next_note(std::uint64_t above_size) {
  Statement rows =
      db_->prepare("SELECT size, note FROM checkpoint WHERE size > ?1 ORDER BY size LIMIT 1");
  rows.bind(1, above_size);
  if (!rows.step()) return std::nullopt;
  return Note{rows.number(0), std::string(rows.text(1))};
}

std::optional<Store::Note> Store::last_note() {
  Statement rows = db_->prepare("SELECT size, note FROM checkpoint ORDER BY size DESC LIMIT 1");
  if (!rows.step()) return std::nullopt;
  return Note{rows.number(0), std::string(rows.text(1))};
}

Store::Openings::Openings(Store& store)
    : rows_(std::make_unique<Statement>(store.db_->prepare(
          "SELECT position, descriptor, signature FROM opening ORDER BY position"))) {}
Store::Openings::~Openings() = default;

bool Store::Openings::next(Opening& opening) {
  if (!rows_->step()) return false;
  const auto copy = [](ByteView bytes) { return Bytes(bytes.begin(), bytes.end()); };
  opening = {rows_->number(0), copy(rows_->bytes(1)), copy(rows_->bytes(2))};
  return true;
}

std::optional<Store::Opening> Store::opening(std::uint64_t position) {
  Statement rows = db_->prepare("SELECT descriptor, signature FROM opening WHERE position = ?1");
  rows.bind(1, position);
  if (!rows.step()) return std::nullopt;
  const auto copy = [](ByteView bytes) { return Bytes(bytes.begin(), bytes.end()); };
  return Opening{position, copy(rows.bytes(0)), copy(rows.bytes(1))};
}

void Store::Batch::add(ByteView leaf) {
  bytes.insert(bytes.end(), leaf.begin(), leaf.end());
  ends.push_back(bytes.size());
}

ByteView Store::Batch::leaf(std::size_t i) const {
  const std::size_t begin = i == 0 ? 0 : ends[i - 1];
  return ByteView(bytes).subspan(begin, ends[i] - begin);
}

void Store::append(std::uint64_t first, const Batch& batch) {
  db_->transact([&] {
    Statement insert = db_->prepare("INSERT INTO leaf(position, items) VALUES(?1, ?2)");
    std::size_t row = 0, begin = 0;  // its first leaf, and where that starts
    for (std::size_t i = 0; i < batch.ends.size(); ++i) {
      if (batch.ends[i] - begin < kRowBytes && i + 1 != batch.ends.size()) continue;
      insert.bind(1, first + row)
          .bind(2, ByteView(batch.bytes).subspan(begin, batch.ends[i] - begin))
          .once();
      row = i + 1;
      begin = batch.ends[i];
    }
    Statement open =
        db_->prepare("INSERT INTO opening(position, descriptor, signature) VALUES(?1, ?2, ?3)");
    for (const Opening& opening : batch.openings)
      open.bind(1, opening.position).bind(2, opening.descriptor).bind(3, opening.signature).once();
  });
}

void Store::sign(const Note& note, const std::vector<std::pair<std::uint64_t, Digest>>& summarise) {
  db_->transact([&] {
    db_->prepare("INSERT INTO checkpoint(size, note) VALUES(?1, ?2)")
        .bind(1, note.size)
        .bind_text(2, note.text)
        .once();
    Statement find = db_->prepare(
        "SELECT position, items FROM leaf WHERE position <= ?1 ORDER BY position DESC LIMIT 1");
    Statement forget = db_->prepare("UPDATE leaf SET items = ?2 WHERE position = ?1");
    Statement drop = db_->prepare("DELETE FROM opening WHERE position = ?1");
    for (auto next = summarise.begin(); next != summarise.end();) {
      find.bind(1, next->first);
      if (!find.step()) malformed(kOperator, "a leaf to summarise does not exist");
      const std::uint64_t row = find.number(0);
      Bytes items;
      const auto first = next;
      std::uint64_t position = row;
      for (ByteView rest = find.bytes(1); !rest.empty(); ++position) {
        const ByteView item = take_item(rest);
        if (next == summarise.end() || next->first != position) {
          items.insert(items.end(), item.begin(), item.end());
          continue;
        }
        items.insert(items.end(), std::begin(kHashHead), std::end(kHashHead));
        items.insert(items.end(), next->second.begin(), next->second.end());
        drop.bind(1, position).once();
        ++next;
      }
      find.reset();
      if (next == first) malformed(kOperator, "a leaf to summarise does not exist");
      forget.bind(1, row).bind(2, items).once();
    }
  });
}

void Store::discard_from(std::uint64_t size) {
  db_->transact([&] {
    db_->prepare("DELETE FROM leaf WHERE position >= ?1").bind(1, size).once();
    db_->prepare("DELETE FROM opening WHERE position >= ?1").bind(1, size).once();
  });
}

void Store::move_to(const std::filesystem::path& path) {
  db_.reset();
  if (::link(path_.c_str(), path.c_str()) != 0) cannot_create(path);
  ::unlink(path_.c_str());
  flush_directory(path.has_parent_path() ? path.parent_path() : ".");
  path_ = path;
  db_ = open();
}

void Store::let_go() {
  db_.reset();
  lock_.reset();
}

void Store::take_up(int patience_ms) { *this = Store(path_, mode_, patience_ms); }

void Store::reread() {
  if (lock_) posix_fadvise(lock_->fd, 0, 0, POSIX_FADV_DONTNEED);
  db_->forget_pages();
}

void Store::check_ranges() {
  if (db_->number("SELECT EXISTS(SELECT 1 FROM leaf WHERE position < 0) OR "
                  "EXISTS(SELECT 1 FROM opening WHERE position < 0) OR "
                  "EXISTS(SELECT 1 FROM checkpoint WHERE size < 1)") != 0)
    malformed(kOperator, "the file has a row before the first entry");
}

void Store::check_pages() {
  Statement rows = db_->prepare("PRAGMA integrity_check(1)");
  if (!rows.step() || rows.text(0) != "ok")
    malformed(kOperator, "the pages of the file are damaged");
}

void Store::begin_snapshot() {
  constexpr int kPauseMs = 10;
  for (int left_ms = kPatienceMs;; left_ms -= kPauseMs) {
    db_->run("BEGIN");
    if (left_ms <= 0 || !has_unsigned_tail() || !has_writer()) return;
    db_->run("COMMIT");  // lets the writer commit
    std::this_thread::sleep_for(std::chrono::milliseconds(kPauseMs));
  }
}

bool Store::has_unsigned_tail() try {
  return db_->number(
             "SELECT EXISTS(SELECT 1 FROM leaf WHERE position >= "
             "(SELECT max(size) FROM checkpoint))") != 0;
} catch (const Error& error) {
  if (error.code() == ErrorCode::kIoError) throw;
  return false;  // the reader of the damaged file reports what is wrong
}

bool Store::has_writer() {
  if (!probe_) probe_ = std::make_unique<Probe>(path_);
  return probe_->is_refused();
}

}  // namespace discreet::ledger
