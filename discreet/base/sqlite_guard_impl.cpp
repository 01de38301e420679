#include "discreet/base/sqlite_guard_impl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "discreet/base/error.h"
#include "discreet/base/sqlite_gaps_impl.h"

namespace discreet {
namespace {

sqlite3_vfs* system_vfs() { return sqlite3_vfs_find(nullptr); }

constexpr int padded(int bytes) { return (bytes + 15) / 16 * 16; }

// A file's methods, behind the file of the system's VFS.
struct Methods {
  sqlite3_io_methods own;  // first: the file points here
  int (*write)(sqlite3_file*, const void*, int, sqlite3_int64) = nullptr;
  bool has_pointer_map = false;  // auto_vacuum
};

// Opens by the system's VFS. The copy of the file's methods behind it says version 1, in which
// there is no shared memory: SQLite then rejects WAL mode.
int open_file(const char* name, sqlite3_file* file, int flags, int* out_flags) {
  sqlite3_vfs* base = system_vfs();
  const int code = base->xOpen(base, name, file, flags, out_flags);
  if (code != SQLITE_OK || file->pMethods == nullptr) return code;
  auto* methods = new (reinterpret_cast<char*>(file) + padded(base->szOsFile))
      Methods{*file->pMethods, file->pMethods->xWrite};
  methods->own.iVersion = 1;
  file->pMethods = &methods->own;
  return code;
}

bool has_pointer_map(const unsigned char* field) {
  return std::any_of(field, field + 4, [](unsigned char byte) { return byte != 0; });
}
constexpr int kPointerMapField = 52;

// Writes a page of a database without what it does not use.
int write_page(sqlite3_file* file, const void* data, int size, sqlite3_int64 at) {
  constexpr int kLeast = 512, kMost = 1 << 16;
  constexpr sqlite3_int64 kMostPages = 1 << 25;
  auto* methods = reinterpret_cast<Methods*>(const_cast<sqlite3_io_methods*>(file->pMethods));
  const bool page = size >= kLeast && size <= kMost && at % size == 0 && at / size < kMostPages;
  const auto* bytes = static_cast<const unsigned char*>(data);
  if (page && at == 0) methods->has_pointer_map = has_pointer_map(bytes + kPointerMapField);
  if (!page || methods->has_pointer_map) return methods->write(file, data, size, at);
  static thread_local std::array<unsigned char, kMost> copy;
  std::copy_n(bytes, size, copy.begin());
  zero_gaps(std::span(copy).first(static_cast<std::size_t>(size)), at == 0);
  return methods->write(file, copy.data(), size, at);
}

int open_to_read(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  file->pMethods = nullptr;
  if ((flags & SQLITE_OPEN_MAIN_DB) == 0) return SQLITE_CANTOPEN;
  flags &= ~(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_DELETEONCLOSE);
  return open_file(name, file, flags | SQLITE_OPEN_READONLY, out_flags);
}

int open_to_write(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  file->pMethods = nullptr;
  if ((flags & (SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_WAL)) != 0) return SQLITE_CANTOPEN;
  const int code = open_file(name, file, flags, out_flags);
  if (code != SQLITE_OK || (flags & SQLITE_OPEN_MAIN_DB) == 0) return code;
  auto* methods = reinterpret_cast<Methods*>(const_cast<sqlite3_io_methods*>(file->pMethods));
  std::array<unsigned char, 4> field{};
  // A file that is still empty says it with its first page.
  const int read = methods->own.xRead(file, field.data(), field.size(), kPointerMapField);
  methods->has_pointer_map = read == SQLITE_OK && has_pointer_map(field.data());
  methods->own.xWrite = write_page;
  return code;
}

int delete_nothing(sqlite3_vfs*, const char*, int) { return SQLITE_IOERR_DELETE; }

int see_nothing(sqlite3_vfs*, const char*, int, int* result) {
  *result = 0;
  return SQLITE_OK;
}

// The name of a VFS that is registered once for the process and never removed.
const char* vfs_of(Database::Mode mode) {
  static sqlite3_vfs vfs[2];
  static const bool registered = [] {
    for (sqlite3_vfs& each : vfs) {
      each = *system_vfs();
      each.szOsFile = padded(each.szOsFile) + static_cast<int>(sizeof(Methods));
      each.pNext = nullptr;
    }
    vfs[0].zName = "discreet-read";
    vfs[0].xOpen = open_to_read;
    vfs[0].xDelete = delete_nothing;
    vfs[0].xAccess = see_nothing;
    vfs[1].zName = "discreet-write";
    vfs[1].xOpen = open_to_write;
    return sqlite3_vfs_register(&vfs[0], 0) == SQLITE_OK &&
           sqlite3_vfs_register(&vfs[1], 0) == SQLITE_OK;
  }();
  if (!registered) throw std::bad_alloc();
  return vfs[mode == Database::Mode::kRead ? 0 : 1].zName;
}

}  // namespace

int open_guarded(const std::filesystem::path& path, Database::Mode mode, int extra_flags,
                 sqlite3** database) {
  // initialised before its VFS is looked up
  if (const int code = sqlite3_initialize(); code != SQLITE_OK) return code;
  const int how = mode == Database::Mode::kRead ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
  return sqlite3_open_v2(path.c_str(), database, how | extra_flags, vfs_of(mode));
}

void require_own_journal(const std::filesystem::path& path, const char* op) {
  // SQLite resolves links of the database's name before it adds to it.
  std::error_code none;
  const std::filesystem::path real = std::filesystem::canonical(path, none);
  const std::string name = (none ? path : real).string() + "-journal";
  const auto refuse = [&](const char* why) {
    malformed(op,
              "{} {}, and would be played back into the file: move it away if you do not expect it",
              name, why);
  };
  const int fd = ::open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return;
  if (fd < 0) refuse(errno == ELOOP ? "is a symbolic link" : std::strerror(errno));
  struct stat journal {
  }, database{};
  const bool known = ::fstat(fd, &journal) == 0 && ::stat(path.c_str(), &database) == 0;
  // The end of a journal that names a super-journal.
  constexpr std::array<unsigned char, 8> kMagic = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
  std::array<unsigned char, 8> end{};
  const auto size = static_cast<off_t>(end.size());
  const bool names_another = known && journal.st_size >= size &&
                             ::pread(fd, end.data(), end.size(), journal.st_size - size) == size &&
                             end == kMagic;
  ::close(fd);
  if (!known || !S_ISREG(journal.st_mode)) refuse("is not a regular file");
  if (journal.st_uid != database.st_uid) refuse("belongs to another user than the file");
  if (names_another) refuse("names a super-journal, which discreet never writes");
}

void require_no_wal(sqlite3* database, const char* op) {
  sqlite3_file* file = nullptr;
  sqlite3_file_control(database, "main", SQLITE_FCNTL_FILE_POINTER, &file);
  std::array<unsigned char, 2> versions{};
  constexpr int kAt = 18;  // write and read version: 1 rollback journal, 2 WAL
  if (file == nullptr || file->pMethods == nullptr ||
      file->pMethods->xRead(file, versions.data(), versions.size(), kAt) != SQLITE_OK)
    return;  // an empty file, which has no schema
  if (versions[0] == 2 || versions[1] == 2)
    malformed(op,
              "the file is in WAL mode, which discreet never uses: a -wal file may contain further "
              "content that does not belong to it");
}

}  // namespace discreet
