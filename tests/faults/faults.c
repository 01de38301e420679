// Faults on demand, for a process that is started with this library in LD_PRELOAD:
//   FAULT_WRITE=N   what happens at the N-th call that changes a file or folder, counted from 1
//   FAULT_KIND      kill   the process ends before the call
//                   after  the process ends after the call
//                   torn   half of the bytes are written, and the process ends
//                   a name of errno (ENOSPC, EDQUOT, EROFS, EFBIG, EIO): this call and all later ones
//                   fail so; unlink, and shortening a file, still work unless it is EROFS
//   FAULT_ALLOC=N   the N-th allocation since main() started gives no memory
//   FAULT_ALLOC_ON  set: and all later ones
//   FAULT_REPORT=F  at the end, "WRITES ALLOCATIONS\n" is written to file F
// Writes to the first three descriptors are not counted: nobody keeps a file there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long writes, allocations;
static long write_at = -1, alloc_at = -1;
static int started, alloc_on, failing, mode;  // mode: 0 kill, 1 after, 2 torn, 3 an errno
static int error_number;
static const char* report;

static long number_of(const char* name) {
  const char* text = getenv(name);
  return text ? atol(text) : -1;
}

static void set_up(void) {
  static const struct {
    const char* name;
    int number;
  } kErrors[] = {{"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EROFS", EROFS}, {"EFBIG", EFBIG}, {"EIO", EIO}};
  write_at = number_of("FAULT_WRITE");
  alloc_at = number_of("FAULT_ALLOC");
  alloc_on = getenv("FAULT_ALLOC_ON") != NULL;
  report = getenv("FAULT_REPORT");
  const char* kind = getenv("FAULT_KIND");
  if (kind == NULL || strcmp(kind, "kill") == 0) return;
  mode = strcmp(kind, "after") == 0 ? 1 : strcmp(kind, "torn") == 0 ? 2 : 3;
  for (size_t i = 0; i < sizeof kErrors / sizeof *kErrors; ++i)
    if (strcmp(kind, kErrors[i].name) == 0) error_number = kErrors[i].number;
}

static void tell(void) {
  if (report == NULL) return;
  char text[64];
  const int size = snprintf(text, sizeof text, "%ld %ld\n", atomic_load(&writes), atomic_load(&allocations));
  const int file = (int)syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file >= 0 && syscall(SYS_write, file, text, size) == size) syscall(SYS_close, file);
}

static void die(void) {
  tell();
  syscall(SYS_exit_group, 137);
}

// ---------------------------------------------------------------- memory

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static int no_memory(void) {
  if (!started) return 0;
  const long n = atomic_fetch_add(&allocations, 1) + 1;
  if (alloc_at < 0 || n < alloc_at || (n > alloc_at && !alloc_on)) return 0;
  errno = ENOMEM;
  return 1;
}

void* malloc(size_t size) { return no_memory() ? NULL : __libc_malloc(size); }
void* calloc(size_t n, size_t size) { return no_memory() ? NULL : __libc_calloc(n, size); }
void* realloc(void* old, size_t size) { return no_memory() ? NULL : __libc_realloc(old, size); }
void* memalign(size_t at, size_t size) { return no_memory() ? NULL : __libc_memalign(at, size); }
void* aligned_alloc(size_t at, size_t size) { return no_memory() ? NULL : __libc_memalign(at, size); }
int posix_memalign(void** out, size_t at, size_t size) {
  if (no_memory()) return ENOMEM;
  *out = __libc_memalign(at, size);
  return *out == NULL ? ENOMEM : 0;
}

// ---------------------------------------------------------------- files

enum { kGrows, kShrinks };

// 0: call as usual. 1: call, then die. 2: write half, then die. 3: fail with errno.
static int fault(int what) {
  if (!started || write_at < 0) {
    if (started) atomic_fetch_add(&writes, 1);
    return 0;
  }
  const long n = atomic_fetch_add(&writes, 1) + 1;
  if (n == write_at) {
    if (mode == 0) die();
    if (mode != 3) return mode;
    failing = 1;
  }
  if (!failing || (what == kShrinks && error_number != EROFS)) return 0;
  errno = error_number;
  return 3;
}

#define REAL(type, name, ...)                   \
  static type (*real)(__VA_ARGS__);             \
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, #name)

#define GUARDED(what, call)      \
  const int f = fault(what);     \
  if (f == 3) return -1;         \
  const __typeof__(call) r = call; \
  if (f != 0) die();             \
  return r

ssize_t write(int fd, const void* data, size_t size) {
  REAL(ssize_t, write, int, const void*, size_t);
  if (fd <= 2) return real(fd, data, size);
  const int f = fault(kGrows);
  if (f == 3) return -1;
  const ssize_t r = real(fd, data, f == 2 ? size / 2 : size);
  if (f != 0) die();
  return r;
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  REAL(ssize_t, pwrite, int, const void*, size_t, off_t);
  const int f = fault(kGrows);
  if (f == 3) return -1;
  const ssize_t r = real(fd, data, f == 2 ? size / 2 : size, at);
  if (f != 0) die();
  return r;
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) { return pwrite(fd, data, size, at); }
ssize_t writev(int fd, const struct iovec* pieces, int count) {
  REAL(ssize_t, writev, int, const struct iovec*, int);
  if (fd <= 2) return real(fd, pieces, count);
  GUARDED(kGrows, real(fd, pieces, count));
}
int ftruncate(int fd, off_t size) {
  REAL(int, ftruncate, int, off_t);
  GUARDED(kShrinks, real(fd, size));
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }
int fsync(int fd) {
  REAL(int, fsync, int);
  GUARDED(kGrows, real(fd));
}
int fdatasync(int fd) {
  REAL(int, fdatasync, int);
  GUARDED(kGrows, real(fd));
}
int rename(const char* from, const char* to) {
  REAL(int, rename, const char*, const char*);
  GUARDED(kGrows, real(from, to));
}
int unlink(const char* path) {
  REAL(int, unlink, const char*);
  GUARDED(kShrinks, real(path));
}
int link(const char* from, const char* to) {
  REAL(int, link, const char*, const char*);
  GUARDED(kGrows, real(from, to));
}
int mkdir(const char* path, mode_t permissions) {
  REAL(int, mkdir, const char*, mode_t);
  GUARDED(kGrows, real(path, permissions));
}

static int opened(int folder, const char* path, int flags, mode_t permissions) {
  REAL(int, openat, int, const char*, int, ...);
  if ((flags & (O_CREAT | O_TRUNC)) == 0) {
    if (failing && error_number == EROFS && (flags & O_ACCMODE) != O_RDONLY) {
      errno = EROFS;
      return -1;
    }
    return real(folder, path, flags, permissions);
  }
  GUARDED(kGrows, real(folder, path, flags, permissions));
}
#define PERMISSIONS                                  \
  va_list rest;                                      \
  va_start(rest, flags);                             \
  const mode_t permissions = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
  va_end(rest)
int open(const char* path, int flags, ...) {
  PERMISSIONS;
  return opened(AT_FDCWD, path, flags, permissions);
}
int open64(const char* path, int flags, ...) {
  PERMISSIONS;
  return opened(AT_FDCWD, path, flags, permissions);
}
int openat(int folder, const char* path, int flags, ...) {
  PERMISSIONS;
  return opened(folder, path, flags, permissions);
}
int openat64(int folder, const char* path, int flags, ...) {
  PERMISSIONS;
  return opened(folder, path, flags, permissions);
}

// ---------------------------------------------------------------- counting starts with main

static int (*program)(int, char**, char**);

static int counted(int argc, char** argv, char** environment) {
  set_up();
  started = 1;
  const int status = program(argc, argv, environment);
  started = 0;
  tell();
  return status;
}

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(void), void (*fini)(void),
                      void (*loader)(void), void* stack) {
  int (*real)(int (*)(int, char**, char**), int, char**, void (*)(void), void (*)(void), void (*)(void), void*);
  *(void**)&real = dlsym(RTLD_NEXT, "__libc_start_main");
  program = main;
  return real(counted, argc, argv, init, fini, loader, stack);
}
