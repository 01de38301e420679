#include "discreet/unlearning/service/store_impl.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "discreet/base/error.h"
#include "discreet/base/sqlite.h"
#include "discreet/unlearning/saved_impl.h"

namespace discreet::unlearning {
namespace {

constexpr std::int64_t kApplication = 0x44554e31;  // "DUN1"
constexpr std::int64_t kPlain = 1, kWithForm = 2;  // versions of the file

constexpr std::string_view kTables[] = {
    "CREATE TABLE deletion(number INTEGER PRIMARY KEY, entry BLOB NOT NULL, salt BLOB NOT NULL, "
    "records BLOB NOT NULL) STRICT",
    "CREATE TABLE record(id INTEGER PRIMARY KEY, subject TEXT NOT NULL, row BLOB NOT NULL) STRICT",
    "CREATE INDEX record_subject ON record(subject)",
    "CREATE TABLE request(name TEXT PRIMARY KEY, kind INTEGER NOT NULL, first INTEGER NOT NULL, "
    "count INTEGER NOT NULL, digest BLOB NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE value(name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID",
};

constexpr const char* kOperator = "unlearn store";

// A record: its features, and its label.
std::vector<double> record_of(ByteView bytes) {
  auto row = unpacked<double>(bytes);
  if (row.empty()) malformed(kOperator, "a record of the store is empty");
  return row;
}

Bytes copy(ByteView bytes) { return {bytes.begin(), bytes.end()}; }

// SQLite would create the file with the mode of the umask; this file is private to its owner from
// the start.
void make_file(const std::filesystem::path& path) {
  const int made = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (made < 0) {
    fail(errno == EEXIST ? ErrorCode::kInvalidInput : ErrorCode::kIoError, "unlearn store",
         "{}: {}", path.string(),
         errno == EEXIST ? "the file already exists; choose another path" : std::strerror(errno));
  }
  ::close(made);
}

// Whether a journal with content lies beside the file. SQLite resolves links of the file's name.
bool has_journal(const std::filesystem::path& path) {
  std::error_code none;
  const std::filesystem::path real = std::filesystem::canonical(path, none);
  const auto size = std::filesystem::file_size(real.string() + "-journal", none);
  return !none && size > 0;
}

void require_file(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    invalid_input(kOperator, "{}: {}; create a model with 'discreet unlearn init'", path.string(),
                  std::strerror(errno));
  }
  if ((status.st_mode & 077) != 0) {
    io_error(kOperator, "others may read {} (mode {:o}), which contains records; run: chmod 600",
             path.string(), status.st_mode & 07777);
  }
}

}  // namespace

ModelStore::ModelStore(const std::filesystem::path& path, Mode mode) {
  mode == Mode::kCreate ? make_file(path) : require_file(path);
  db_ = std::make_unique<Database>(path, Database::Mode::kWrite, "store");
  // The lock is taken by the first statement and held: what is in memory stays what is in the file.
  // The journal holds what a commit replaced, deleted records too. Under a lock that is held SQLite
  // does not delete it: DELETE and PERSIST overwrite only its head, TRUNCATE empties it.
  db_->run(
      "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=FULL; "
      "PRAGMA secure_delete=ON; PRAGMA cell_size_check=ON; PRAGMA cache_size=-64000; "
      "BEGIN EXCLUSIVE; COMMIT");
  if (mode == Mode::kCreate) {
    db_->run(fmt::format("BEGIN; PRAGMA application_id={}; PRAGMA user_version={}; {}; COMMIT",
                         kApplication, kPlain, fmt::join(kTables, "; "))
                 .c_str());
  }
  if (db_->number("PRAGMA application_id") != kApplication) {
    malformed(kOperator, "{} is not a store of a model, but another database", path.string());
  }
  const std::int64_t version = db_->number("PRAGMA user_version");
  if (version != kPlain && version != kWithForm) {
    malformed(kOperator, "the store has a file version that this build does not support");
  }
  // A journal with a head was rolled back by now; one that a killed process left without is emptied
  // by the next commit, and that is this one.
  if (has_journal(path))
    db_->run(fmt::format("BEGIN; PRAGMA user_version={}; COMMIT", version).c_str());
}

ModelStore::~ModelStore() {
  try {
    db_->run("PRAGMA journal_mode=DELETE");  // so that closing removes the empty journal
  } catch (...) {
  }
}

void ModelStore::require_form_reader() {
  db_->run(fmt::format("PRAGMA user_version={}", kWithForm).c_str());
}

void ModelStore::transact(const std::function<void()>& work) {
  db_->transact(work);
  ++commits_;
}

std::optional<Bytes> ModelStore::get(std::string_view name) {
  auto rows = db_->prepare("SELECT value FROM value WHERE name = ?1");
  rows.bind_text(1, name);
  if (!rows.step()) return std::nullopt;
  return copy(rows.bytes(0));
}

void ModelStore::put(std::string_view name, ByteView value) {
  db_->prepare("INSERT OR REPLACE INTO value(name, value) VALUES(?1, ?2)")
      .bind_text(1, name)
      .bind(2, value)
      .once();
}

void ModelStore::drop(std::string_view name) {
  db_->prepare("DELETE FROM value WHERE name = ?1").bind_text(1, name).once();
}

std::uint64_t ModelStore::number(std::string_view name) {
  const auto value = get(name);
  if (!value) return 0;
  const auto numbers = unpacked<std::uint64_t>(*value);
  if (numbers.size() != 1) malformed(kOperator, "{} must be a number", name);
  return numbers[0];
}

void ModelStore::put_number(std::string_view name, std::uint64_t value) {
  put(name, packed(std::span<const std::uint64_t>(&value, 1)));
}

void ModelStore::add_record(RecordId id, std::string_view subject, const std::vector<double>& row) {
  const Bytes bytes = packed(row);
  db_->prepare("INSERT INTO record(id, subject, row) VALUES(?1, ?2, ?3)")
      .bind(1, id)
      .bind_text(2, subject)
      .bind(3, bytes)
      .once();
}

void ModelStore::drop_record(RecordId id) {
  db_->prepare("DELETE FROM record WHERE id = ?1").bind(1, id).once();
}

std::vector<RecordId> ModelStore::records_of(std::string_view subject) {
  auto rows = db_->prepare("SELECT id FROM record WHERE subject = ?1 ORDER BY id");
  rows.bind_text(1, subject);
  std::vector<RecordId> ids;
  while (rows.step()) ids.push_back(rows.number(0));
  return ids;
}

std::vector<double> ModelStore::row(RecordId id) {
  auto rows = db_->prepare("SELECT row FROM record WHERE id = ?1");
  rows.bind(1, id);
  if (!rows.step()) malformed(kOperator, "record {} does not exist", id);
  return record_of(rows.bytes(0));
}

void ModelStore::each_record(const Visit& visit) {
  auto rows = db_->prepare("SELECT id, subject, row FROM record ORDER BY id");
  while (rows.step()) visit(rows.number(0), rows.text(1), record_of(rows.bytes(2)));
}

std::optional<ModelStore::Request> ModelStore::request(std::string_view name) {
  auto rows = db_->prepare("SELECT kind, first, count, digest FROM request WHERE name = ?1");
  rows.bind_text(1, name);
  if (!rows.step()) return std::nullopt;
  Request request{rows.number(0), rows.number(1), rows.number(2), {}};
  const ByteView digest = rows.bytes(3);
  if (digest.size() != request.digest.size()) malformed(kOperator, "a digest has the wrong length");
  std::copy(digest.begin(), digest.end(), request.digest.begin());
  return request;
}

void ModelStore::put_request(std::string_view name, const Request& request) {
  db_->prepare(
         "INSERT OR REPLACE INTO request(name, kind, first, count, digest) "
         "VALUES(?1, ?2, ?3, ?4, ?5)")
      .bind_text(1, name)
      .bind(2, request.kind)
      .bind(3, request.first)
      .bind(4, request.count)
      .bind(5, ByteView(request.digest))
      .once();
}

void ModelStore::add_deletion(std::uint64_t number, const DeletionRow& row) {
  const Bytes records = packed(row.records);
  db_->prepare("INSERT INTO deletion(number, entry, salt, records) VALUES(?1, ?2, ?3, ?4)")
      .bind(1, number)
      .bind(2, row.entry)
      .bind(3, row.salt)
      .bind(4, records)
      .once();
}

std::vector<ModelStore::DeletionRow> ModelStore::deletions(std::uint64_t first,
                                                           std::uint64_t count) {
  auto rows = db_->prepare(
      "SELECT entry, salt, records FROM deletion WHERE number >= ?1 ORDER BY number LIMIT ?2");
  rows.bind(1, first).bind(2, count);
  std::vector<DeletionRow> found;
  while (rows.step()) {
    found.push_back({copy(rows.bytes(0)), copy(rows.bytes(1)), unpacked<RecordId>(rows.bytes(2))});
  }
  return found;
}

}  // namespace discreet::unlearning
