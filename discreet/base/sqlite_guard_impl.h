#pragma once

#include <sqlite3.h>

#include <filesystem>

#include "discreet/base/sqlite.h"

// How Database opens files safely, even if other people wrote the file or its neighbours.
namespace discreet {

// As sqlite3_open_v2, whose result code is returned. extra_flags: flags besides those of the mode.
// For kWrite, call require_own_journal() first.
int open_guarded(const std::filesystem::path& path, Database::Mode mode, int extra_flags,
                 sqlite3** database);

// Checks the journal that a rollback after a killed writer would use: throws kMalformed unless the
// journal next to `path` is a regular file of the same owner that names no super-journal, or there
// is none. op: for the error.
void require_own_journal(const std::filesystem::path& path, const char* op);

// Throws kMalformed for a database in WAL mode; this library never writes one. Call it before the
// first statement.
void require_no_wal(sqlite3* database, const char* op);

}  // namespace discreet
