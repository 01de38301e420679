#include "discreet/admission/uses.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <system_error>

#include "discreet/admission/guarded_sqlite_impl.h"
#include "discreet/base/error.h"

namespace discreet::admission {
namespace {

constexpr int kApplication = 0x64757365;  // "duse"
constexpr std::uint64_t kMostUses = std::uint64_t{1} << 32;

[[noreturn]] void failed(sqlite3* database, const char* what) {
  const int code = sqlite3_errcode(database);
  const bool foreign = code == SQLITE_NOTADB || code == SQLITE_CORRUPT;
  throw Error(foreign ? ErrorCode::kMalformed : ErrorCode::kIoError, "UseStore",
              fmt::format("cannot {} the store of uses: {}", what, sqlite3_errmsg(database)));
}

[[noreturn]] void invalid(std::string sentence) {
  throw Error(ErrorCode::kInvalidInput, "UseStore", std::move(sentence));
}

void execute(sqlite3* database, const char* sql, const char* what) {
  if (sqlite3_exec(database, sql, nullptr, nullptr, nullptr) != SQLITE_OK) failed(database, what);
}

class Statement {
 public:
  Statement(sqlite3* database, const char* sql) : database_(database) {
    if (sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr) != SQLITE_OK)
      failed(database, "read");
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(int at, std::int64_t number) {
    if (sqlite3_bind_int64(statement_, at, number) != SQLITE_OK) failed(database_, "read");
    return *this;
  }
  Statement& bind(int at, const Digest& digest) {
    if (sqlite3_bind_blob(statement_, at, digest.data(), static_cast<int>(digest.size()),
                          SQLITE_TRANSIENT) != SQLITE_OK)
      failed(database_, "read");
    return *this;
  }
  // Whether there is a row.
  bool step() {
    const int code = sqlite3_step(statement_);
    if (code != SQLITE_ROW && code != SQLITE_DONE) failed(database_, "change");
    return code == SQLITE_ROW;
  }
  std::int64_t column(int at) { return sqlite3_column_int64(statement_, at); }
  void reset() { sqlite3_reset(statement_); }

 private:
  sqlite3* database_;
  sqlite3_stmt* statement_ = nullptr;
};

// The number of a run or descriptor in its table, made if it is new.
std::int64_t number_of(Statement& find, Statement& add, sqlite3* database, const Digest& digest) {
  find.reset();
  if (find.bind(1, digest).step()) return find.column(0);
  add.reset();
  add.bind(1, digest).step();
  return sqlite3_last_insert_rowid(database);
}

// SQLite would make the file as the umask says; this one is for its owner only from the beginning.
void make_private(const std::filesystem::path& path) {
  const int made = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (made >= 0) {
    ::close(made);
    return;
  }
  struct stat status {};
  if (errno != EEXIST || ::stat(path.c_str(), &status) != 0)
    throw Error(
        ErrorCode::kIoError, "UseStore",
        fmt::format("cannot open {}: {}", path.string(), std::generic_category().message(errno)));
  if ((status.st_mode & 077) != 0)
    throw Error(ErrorCode::kIoError, "UseStore",
                fmt::format("others may read {} (mode {:o}); uses are confidential: chmod 600",
                            path.string(), status.st_mode & 07777));
}

// Ends the transaction as it found things unless it was committed.
class Transaction {
 public:
  explicit Transaction(sqlite3* database) : database_(database) {
    execute(database, "BEGIN IMMEDIATE", "lock");
  }
  ~Transaction() {
    if (!done_) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit() {
    execute(database_, "COMMIT", "write");
    done_ = true;
  }

 private:
  sqlite3* database_;
  bool done_ = false;
};

}  // namespace

void UseStore::Close::operator()(sqlite3* database) const noexcept { sqlite3_close(database); }
UseStore::~UseStore() = default;
UseStore::UseStore(UseStore&&) noexcept = default;

UseStore::UseStore(const std::filesystem::path& path, int patience_ms) {
  make_private(path);
  sqlite3* opened = nullptr;
  require_own_journal(path, "UseStore");
  const int code = open_guarded(path, Guard::kWrite, SQLITE_OPEN_FULLMUTEX, &opened);
  database_.reset(opened);
  if (opened == nullptr)
    throw Error(ErrorCode::kIoError, "UseStore", "there is no memory for the store of uses");
  if (code != SQLITE_OK) failed(opened, "open");
  require_no_wal(opened, "UseStore");
  sqlite3_busy_timeout(opened, patience_ms);
  execute(opened,
          "PRAGMA trusted_schema=OFF; PRAGMA journal_mode=DELETE; PRAGMA synchronous=EXTRA; PRAGMA "
          "fullfsync=ON;",
          "open");
  Transaction transaction(opened);
  Statement application(opened, "PRAGMA application_id");
  application.step();
  const std::int64_t kind = application.column(0);
  application.reset();
  Statement tables(opened, "SELECT count(*) FROM sqlite_master");
  tables.step();
  const bool empty = tables.column(0) == 0;
  tables.reset();
  if (kind != kApplication && !(kind == 0 && empty))
    throw Error(ErrorCode::kMalformed, "UseStore",
                fmt::format("{} is another database, no store of uses", path.string()));
  if (empty) {
    execute(
        opened,
        fmt::format("PRAGMA application_id={};"
                    "CREATE TABLE runs(run INTEGER PRIMARY KEY, identity BLOB NOT NULL UNIQUE);"
                    "CREATE TABLE contributions(contribution INTEGER PRIMARY KEY,"
                    " descriptor BLOB NOT NULL UNIQUE, used INTEGER NOT NULL, cap INTEGER NOT NULL,"
                    " CHECK (used >= 0 AND used <= cap));"
                    // granted 0: asked for and refused
                    "CREATE TABLE reservations(run INTEGER, step INTEGER, contribution INTEGER,"
                    " uses INTEGER NOT NULL, granted INTEGER NOT NULL,"
                    " PRIMARY KEY (run, step, contribution)) WITHOUT ROWID;",
                    kApplication)
            .c_str(),
        "create");
  }
  transaction.commit();
}

std::vector<std::uint8_t> UseStore::reserve(const Digest& run, std::uint64_t step,
                                            std::span<const Claim> claims) {
  std::set<Digest> seen;
  for (const Claim& c : claims) {
    if (c.uses == 0 || c.uses > kMostUses || c.cap > kMostUses)
      invalid("a claim has 1 to 2^32 uses and a cap of at most 2^32");
    if (!seen.insert(c.descriptor).second)
      invalid(fmt::format("{} is claimed twice in one step", to_hex(c.descriptor)));
  }
  if (step >> 63 != 0) invalid("a step is below 2^63");
  const auto at = static_cast<std::int64_t>(step);

  sqlite3* db = database_.get();
  Transaction transaction(db);
  Statement find_run(db, "SELECT run FROM runs WHERE identity=?");
  Statement add_run(db, "INSERT INTO runs(identity) VALUES(?)");
  const std::int64_t run_number = number_of(find_run, add_run, db, run);
  Statement find(db, "SELECT contribution, used, cap FROM contributions WHERE descriptor=?");
  Statement add(db, "INSERT INTO contributions(descriptor, used, cap) VALUES(?, 0, ?)");
  Statement earlier(
      db, "SELECT uses, granted FROM reservations WHERE run=? AND step=? AND contribution=?");
  Statement use(db, "UPDATE contributions SET used=used+? WHERE contribution=?");
  Statement record(db, "INSERT INTO reservations VALUES(?, ?, ?, ?, ?)");

  std::vector<std::uint8_t> granted;
  granted.reserve(claims.size());
  for (const Claim& c : claims) {
    const auto cap = static_cast<std::int64_t>(c.cap), uses = static_cast<std::int64_t>(c.uses);
    std::int64_t contribution = 0, used = 0;
    find.reset();
    if (find.bind(1, c.descriptor).step()) {
      contribution = find.column(0);
      used = find.column(1);
      if (find.column(2) != cap)
        invalid(fmt::format("{} was claimed with cap {} before, and now with {}",
                            to_hex(c.descriptor), find.column(2), cap));
    } else {
      add.reset();
      add.bind(1, c.descriptor).bind(2, cap).step();
      contribution = sqlite3_last_insert_rowid(db);
    }
    earlier.reset();
    if (earlier.bind(1, run_number).bind(2, at).bind(3, contribution).step()) {
      if (earlier.column(0) != uses)
        invalid(fmt::format("step {} reserved {} uses of {} before, and now claims {}", step,
                            earlier.column(0), to_hex(c.descriptor), uses));
      granted.push_back(earlier.column(1) != 0 ? 1 : 0);
      continue;
    }
    const bool fits = uses <= cap - used;
    if (fits) {
      use.reset();
      use.bind(1, uses).bind(2, contribution).step();
    }
    record.reset();
    record.bind(1, run_number).bind(2, at).bind(3, contribution).bind(4, uses).bind(5, fits).step();
    granted.push_back(fits ? 1 : 0);
  }
  transaction.commit();
  return granted;
}

std::uint64_t UseStore::used(const Digest& descriptor) const {
  Statement find(database_.get(), "SELECT used FROM contributions WHERE descriptor=?");
  return find.bind(1, descriptor).step() ? static_cast<std::uint64_t>(find.column(0)) : 0;
}

}  // namespace discreet::admission
