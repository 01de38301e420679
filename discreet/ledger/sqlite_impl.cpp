#include "discreet/ledger/sqlite_impl.h"

#include <fmt/format.h>

#include <new>

#include "discreet/base/error.h"

namespace discreet::ledger {

Database::Database(const std::filesystem::path& path, admission::Guard guard, std::string what)
    : path_(path.string()), what_(std::move(what)) {
  if (guard == admission::Guard::kWrite) admission::require_own_journal(path, what_.c_str());
  sqlite3* db = nullptr;
  const int code =
      admission::open_guarded(path, guard, SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_NOMUTEX, &db);
  db_.reset(db);
  if (code != SQLITE_OK) fail(code);
  admission::require_no_wal(db, what_.c_str());
  sqlite3_exec(db, "PRAGMA temp_store=MEMORY", nullptr, nullptr, nullptr);
  // A file from a stranger gets no say in what is executed.
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_busy_timeout(db, 10'000);
}

void Database::fail(int code) const {
  const char* reason = db_ ? sqlite3_errmsg(db_.get()) : sqlite3_errstr(code);
  const auto because = [&](ErrorCode error, std::string_view sentence) {
    return Error(error, what_, fmt::format("{}: {} ({})", path_, sentence, reason));
  };
  switch (code & 0xff) {
    case SQLITE_FULL:
      throw because(ErrorCode::kIoError, "the disk is full; what was written before is intact");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw because(ErrorCode::kIoError,
                    fmt::format("another process is writing to the {}", what_));
    case SQLITE_NOMEM: throw because(ErrorCode::kIoError, "out of memory");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_MISMATCH:
    case SQLITE_CONSTRAINT:
    case SQLITE_FORMAT:
    case SQLITE_ERROR:
      throw because(ErrorCode::kMalformed, fmt::format("the file is no sound {}", what_));
    default: throw because(ErrorCode::kIoError, "the file cannot be read or written");
  }
}

void Database::run(const char* sql) {
  const int code = sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code);
}

Statement Database::prepare(std::string_view sql) {
  if (const auto found = idle_->find(sql); found != idle_->end()) {
    sqlite3_stmt* statement = found->second.release();
    idle_->erase(found);
    return {*this, statement, idle_};
  }
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(db_.get(), sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) fail(code);
  return {*this, statement, idle_};
}

void Statement::Return::operator()(sqlite3_stmt* s) const noexcept {
  std::unique_ptr<sqlite3_stmt, Finalize> statement(s);
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
  const int code = sqlite3_bind_int64(statement_.get(), index, static_cast<std::int64_t>(number));
  if (code != SQLITE_OK) database_->fail(code);
  return *this;
}

Statement& Statement::bind(int index, ByteView bytes) {
  // An empty view has no address, which would bind NULL.
  const void* data = bytes.empty() ? static_cast<const void*>("") : bytes.data();
  const int code = sqlite3_bind_blob64(statement_.get(), index, data, bytes.size(), SQLITE_STATIC);
  if (code != SQLITE_OK) database_->fail(code);
  return *this;
}

Statement& Statement::bind_text(int index, std::string_view text) {
  const int code = sqlite3_bind_text64(statement_.get(), index, text.data(), text.size(),
                                       SQLITE_STATIC, SQLITE_UTF8);
  if (code != SQLITE_OK) database_->fail(code);
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) database_->fail(code);
  return false;
}

void Statement::once() {
  step();
  reset();
}

void Statement::require(int column, int type) const {
  if (sqlite3_column_type(statement_.get(), column) != type)
    throw Error(ErrorCode::kMalformed, "ledger", "a column of the file has another type");
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

std::uint64_t Statement::number(int column) const {
  require(column, SQLITE_INTEGER);
  const std::int64_t number = sqlite3_column_int64(statement_.get(), column);
  if (number < 0) throw Error(ErrorCode::kMalformed, "ledger", "a number of the file is negative");
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

}  // namespace discreet::ledger
