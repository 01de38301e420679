#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "discreet/base/bytes.h"

struct sqlite3;
struct sqlite3_stmt;

// The part of SQLite that this library uses. Every failure throws: kIoError if the machine fails or
// another process has locked the file, kMalformed if the file is not a sound database.
namespace discreet {

class Statement;

// One connection, for one thread. It is safe even if other people wrote the file or its neighbours.
//
// By default, SQLite plays back a journal that lies next to a database, deletes the super-journal
// that the journal names (any path its author chose), and in WAL mode reads and creates further
// files. Here a reader sees only the database file and changes nothing: equal bytes read the same,
// whatever lies next to them. A writer rolls back its own journal, and never a super-journal. Both
// reject a database in WAL mode.
//
// A writer zeroes the bytes that a page does not use before it writes the page. With `PRAGMA
// secure_delete=ON` and an emptied journal, deleted content is then nowhere in the file, except
// runs of up to 3 bytes.
class Database {
 public:
  enum class Mode {
    kRead,   // only the file, read-only, under SQLite's shared lock
    kWrite,  // also its rollback journal, if it is a regular file of the same owner
  };
  // what: the operator and the file's name in errors. patience_ms: how long to wait for another
  // process.
  Database(const std::filesystem::path& path, Mode mode, std::string what,
           int patience_ms = 10'000);

  void run(const char* sql);  // one or more statements without results
  Statement prepare(std::string_view sql);
  std::int64_t number(std::string_view sql);  // the first column of the first row
  std::uint64_t last_row() const;             // the row that was inserted last
  // Runs work() in one transaction: when this returns, all of it is durable; if work() throws,
  // nothing was done and the exception is rethrown.
  void transact(const std::function<void()>& work);

  // Replaces the content of another database by a snapshot of this one.
  void copy_into(Database& other) const;

  // Makes later reads come from the file. Do not call it inside a transaction.
  void forget_pages();

 private:
  friend class Statement;
  struct Close {
    void operator()(sqlite3* db) const noexcept;
  };
  struct Finalize {
    void operator()(sqlite3_stmt* s) const noexcept;
  };
  // Statements that are currently unused, by SQL text: preparing one takes longer than running it.
  using Idle = std::multimap<std::string, std::unique_ptr<sqlite3_stmt, Finalize>, std::less<>>;

  // Throws the exception for an SQLite result code.
  [[noreturn]] void fail(int code) const;
  void require(int code) const;

  std::string path_, what_;
  std::unique_ptr<sqlite3, Close> db_;
  std::shared_ptr<Idle> idle_ = std::make_shared<Idle>();
};

class Statement {
 public:
  Statement& bind(int index, std::uint64_t number);
  Statement& bind(int index, ByteView bytes);  // borrowed until the statement is reset
  Statement& bind_text(int index, std::string_view text);
  bool step();  // true if there is a row
  void once();  // for statements without rows: step and reset
  void reset();

  bool is_null(int column) const;
  // Throw kMalformed for a value of another type, or a negative number.
  std::uint64_t number(int column) const;
  ByteView bytes(int column) const;  // valid until the next step
  std::string_view text(int column) const;

 private:
  friend class Database;
  struct Return {
    std::shared_ptr<Database::Idle> idle;
    void operator()(sqlite3_stmt* s) const noexcept;
  };
  Statement(const Database& database, sqlite3_stmt* statement)
      : database_(&database), statement_(statement, {database.idle_}) {}
  void require(int column, int type) const;

  const Database* database_;
  std::unique_ptr<sqlite3_stmt, Return> statement_;
};

}  // namespace discreet
