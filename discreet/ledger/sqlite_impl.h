#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "discreet/admission/guarded_sqlite_impl.h"
#include "discreet/base/bytes.h"

// As much of SQLite as our files need. Every failure throws: kIoError when the machine failed or
// another process has the file, kMalformed when the file is no sound database.
namespace discreet::ledger {

class Statement;

struct Finalize {
  void operator()(sqlite3_stmt* s) const noexcept { sqlite3_finalize(s); }
};
// Statements that nobody uses at present, by their SQL: to prepare one takes longer than to run it.
using IdleStatements =
    std::multimap<std::string, std::unique_ptr<sqlite3_stmt, Finalize>, std::less<>>;

class Database {
 public:
  // As guarded_sqlite_impl.h says: a reader sees this file alone, and neither takes WAL mode.
  // what: the file's name in error sentences.
  Database(const std::filesystem::path& path, admission::Guard guard, std::string what = "ledger");

  void run(const char* sql);  // one or more statements without results
  Statement prepare(std::string_view sql);
  std::int64_t number(std::string_view sql);  // the first column of the first row
  // work() in one transaction: all of it is durable when this returns, or nothing was done and what
  // it threw comes out.
  void transact(const std::function<void()>& work);

  // What is read next comes from the file. Not inside a transaction.
  void forget_pages() { sqlite3_db_release_memory(db_.get()); }

  // What SQLite's result code means, as an exception.
  [[noreturn]] void fail(int code) const;

 private:
  struct Close {
    void operator()(sqlite3* db) const noexcept { sqlite3_close_v2(db); }
  };
  std::string path_, what_;
  std::unique_ptr<sqlite3, Close> db_;
  std::shared_ptr<IdleStatements> idle_ = std::make_shared<IdleStatements>();
};

class Statement {
 public:
  Statement(const Database& database, sqlite3_stmt* statement, std::shared_ptr<IdleStatements> idle)
      : database_(&database), statement_(statement, {std::move(idle)}) {}

  Statement& bind(int index, std::uint64_t number);
  Statement& bind(int index, ByteView bytes);  // borrowed until the statement is reset
  Statement& bind_text(int index, std::string_view text);
  bool step();  // whether there is a row
  void once();  // for statements without rows: steps and resets
  void reset() { sqlite3_reset(statement_.get()); }

  bool is_null(int column) const;
  // Throw kMalformed for a value of another type, or a negative number.
  std::uint64_t number(int column) const;
  ByteView bytes(int column) const;  // until the next step
  std::string_view text(int column) const;

 private:
  struct Return {
    std::shared_ptr<IdleStatements> idle;
    void operator()(sqlite3_stmt* s) const noexcept;
  };
  void require(int column, int type) const;
  const Database* database_;
  std::unique_ptr<sqlite3_stmt, Return> statement_;
};

}  // namespace discreet::ledger
