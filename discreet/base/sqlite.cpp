#include "discreet/base/sqlite.h"

#include <sqlite3.h>

#include <new>
#include <utility>

#include "discreet/base/error.h"
#include "discreet/base/sqlite_guard_impl.h"

namespace discreet {
namespace {

std::pair<ErrorCode, std::string> meaning_of(int code, const std::string& what) {
  switch (code & 0xff) {
    case SQLITE_FULL: return {ErrorCode::kIoError, "the disk is full; earlier content is intact"};
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return {ErrorCode::kIoError, "another process is writing to the " + what};
    case SQLITE_NOMEM: return {ErrorCode::kIoError, "out of memory"};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_MISMATCH:
    case SQLITE_CONSTRAINT:
    case SQLITE_FORMAT:
    case SQLITE_ERROR: return {ErrorCode::kMalformed, "the file is not a sound " + what};
    default: return {ErrorCode::kIoError, "the file cannot be read or written"};
  }
}

}  // namespace

void Database::Close::operator()(sqlite3* db) const noexcept { sqlite3_close_v2(db); }
void Database::Finalize::operator()(sqlite3_stmt* s) const noexcept { sqlite3_finalize(s); }

Database::Database(const std::filesystem::path& path, Mode mode, std::string what, int patience_ms)
    : path_(path.string()), what_(std::move(what)) {
  if (mode == Mode::kWrite) require_own_journal(path, what_.c_str());
  sqlite3* db = nullptr;
  const int code = open_guarded(path, mode, SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_NOMUTEX, &db);
  db_.reset(db);
  require(code);
  require_no_wal(db, what_.c_str());
  sqlite3_exec(db, "PRAGMA temp_store=MEMORY", nullptr, nullptr, nullptr);
  // A file from an untrusted source must not determine what is executed.
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_busy_timeout(db, patience_ms);
}

void Database::fail(int code) const {
  const auto [error, sentence] = meaning_of(code, what_);
  discreet::fail(error, what_, "{}: {} ({})", path_, sentence,
                 db_ ? sqlite3_errmsg(db_.get()) : sqlite3_errstr(code));
}

void Database::require(int code) const {
  if (code != SQLITE_OK) fail(code);
}

void Database::copy_into(Database& other) const {
  sqlite3_backup* backup = sqlite3_backup_init(other.db_.get(), "main", db_.get(), "main");
  if (backup == nullptr) other.fail(sqlite3_errcode(other.db_.get()));
  const int code = sqlite3_backup_step(backup, -1);
  sqlite3_backup_finish(backup);
  if (code != SQLITE_DONE) other.fail(code);
}

void Database::forget_pages() { sqlite3_db_release_memory(db_.get()); }

std::uint64_t Database::last_row() const {
  return static_cast<std::uint64_t>(sqlite3_last_insert_rowid(db_.get()));
}

void Database::run(const char* sql) {
  require(sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr));
}

Statement Database::prepare(std::string_view sql) {
  if (const auto found = idle_->find(sql); found != idle_->end()) {
    sqlite3_stmt* statement = found->second.release();
    idle_->erase(found);
    return {*this, statement};
  }
  sqlite3_stmt* statement = nullptr;
  require(sqlite3_prepare_v3(db_.get(), sql.data(), static_cast<int>(sql.size()),
                             SQLITE_PREPARE_PERSISTENT, &statement, nullptr));
  return {*this, statement};
}

void Statement::Return::operator()(sqlite3_stmt* s) const noexcept {
  std::unique_ptr<sqlite3_stmt, Database::Finalize> statement(s);
  sqlite3_reset(s);
  sqlite3_clear_bindings(s);
  try {
    idle->emplace(sqlite3_sql(s), std::move(statement));
  } catch (const std::bad_alloc&) {  // then it is not kept
  }
}

void Database::transact(const std::function<void()>& work) {
  prepare("BEGIN IMMEDIATE").once();
  try {
    work();
    prepare("COMMIT").once();
  } catch (...) {
    try {
      run("ROLLBACK");
    } catch (const Error&) {  // SQLite has rolled back by itself
    }
    throw;
  }
}

std::int64_t Database::number(std::string_view sql) {
  Statement statement = prepare(sql);
  return statement.step() && !statement.is_null(0) ? static_cast<std::int64_t>(statement.number(0))
                                                   : 0;
}

Statement& Statement::bind(int index, std::uint64_t number) {
  database_->require(
      sqlite3_bind_int64(statement_.get(), index, static_cast<std::int64_t>(number)));
  return *this;
}

Statement& Statement::bind(int index, ByteView bytes) {
  // An empty view has no address, which would bind NULL.
  const void* data = bytes.empty() ? static_cast<const void*>("") : bytes.data();
  database_->require(
      sqlite3_bind_blob64(statement_.get(), index, data, bytes.size(), SQLITE_STATIC));
  return *this;
}

Statement& Statement::bind_text(int index, std::string_view text) {
  database_->require(sqlite3_bind_text64(statement_.get(), index, text.data(), text.size(),
                                         SQLITE_STATIC, SQLITE_UTF8));
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) database_->fail(code);
  return false;
}

void Statement::reset() { sqlite3_reset(statement_.get()); }

void Statement::once() {
  step();
  reset();
}

void Statement::require(int column, int type) const {
  if (sqlite3_column_type(statement_.get(), column) != type)
    malformed(database_->what_, "a column of the file has the wrong type");
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

std::uint64_t Statement::number(int column) const {
  require(column, SQLITE_INTEGER);
  const std::int64_t number = sqlite3_column_int64(statement_.get(), column);
  if (number < 0) malformed(database_->what_, "a number of the file is negative");
  return static_cast<std::uint64_t>(number);
}

ByteView Statement::bytes(int column) const {
  require(column, SQLITE_BLOB);
  const auto* data =
      static_cast<const std::uint8_t*>(sqlite3_column_blob(statement_.get(), column));
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

std::string_view Statement::text(int column) const {
  require(column, SQLITE_TEXT);
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

}  // namespace discreet
