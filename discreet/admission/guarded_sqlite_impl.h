#pragma once

#include <sqlite3.h>

#include <filesystem>

// SQLite as it may open a file that somebody else wrote, or next to which somebody else wrote one.
//
// Left to itself, SQLite plays a journal back that lies next to a database, deletes the
// super-journal that the journal names (any path its author chose), and in WAL mode reads and
// creates further files. Here a reader sees the database file and nothing else, and changes
// nothing: the same bytes read alike, whatever lies next to them. A writer rolls back its own
// journal, and never a super-journal. Neither takes a database in WAL mode.
namespace discreet::admission {

enum class Guard {
  kRead,   // the file alone, read-only, under SQLite's shared lock
  kWrite,  // and its rollback journal; call require_own_journal() first
};

// As sqlite3_open_v2, whose result code is returned. extra_flags: those besides how it is opened.
int open_guarded(const std::filesystem::path& path, Guard guard, int extra_flags,
                 sqlite3** database);

// What the rollback of a killed writer would use: throws kMalformed unless a journal next to `path`
// is a regular file of the same owner that names no super-journal, or there is none.
// op: of the error.
void require_own_journal(const std::filesystem::path& path, const char* op);

// Throws kMalformed for a database in WAL mode, which no file of ours is. To be called before the
// first statement.
void require_no_wal(sqlite3* database, const char* op);

}  // namespace discreet::admission
