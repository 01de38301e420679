#include "discreet/base/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "discreet/base/error.h"
#include "discreet/base/file_descriptor.h"

namespace discreet {

void cannot_open(const std::filesystem::path& path, int reason) {
  const auto [code, remedy] = [&]() -> std::pair<ErrorCode, const char*> {
    switch (reason) {
      case ENOENT:
      case ENOTDIR: return {ErrorCode::kInvalidInput, "check the path"};
      case EISDIR: return {ErrorCode::kInvalidInput, "give a file"};
      case EACCES: return {ErrorCode::kIoError, "change its permissions"};
      default: return {ErrorCode::kIoError, "try again, or check the disk"};
    }
  }();
  fail(code, "file", "cannot open '{}': {}; {}", path.string(),
       std::generic_category().message(reason), remedy);
}

namespace {

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

int mode_of(Access access) { return access == Access::kOwner ? 0600 : 0666; }

std::string unguessable_name(const std::filesystem::path& path) {
  std::array<std::uint8_t, 16> bytes;
  if (::getentropy(bytes.data(), bytes.size()) != 0)
    fail_on_file("create a temporary name for", path);
  return to_hex(bytes);
}

// A temporary file next to `path` with `bytes` on the disk; removed unless it was moved.
class Neighbour {
 public:
  Neighbour(const std::filesystem::path& path, ByteView bytes, int mode,
            const struct stat* like = nullptr)
      : path_(folder_of(path) / fmt::format(".{}.{}.part", path.filename().string().substr(0, 128),
                                            unguessable_name(path))) {
    Descriptor file(path_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    there_ = true;
    try {
      if (like) keep(file, *like);
      file.write(bytes);
      file.flush();
    } catch (...) {
      remove();
      throw;
    }
  }
  ~Neighbour() { remove(); }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  void replace(const std::filesystem::path& path) {
    struct stat there {};  // /dev/null is not replaced by a file
    if (::lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode)) {
      errno = S_ISDIR(there.st_mode) ? EISDIR : EINVAL;
      fail_on_file("replace", path);
    }
    if (::rename(path_.c_str(), path.c_str()) != 0) fail_on_file("replace", path);
    there_ = false;
    flush_directory(folder_of(path));
  }
  // False if there is such a file.
  bool become(const std::filesystem::path& path) {
    if (::link(path_.c_str(), path.c_str()) != 0) {
      if (errno == EEXIST) return false;
      fail_on_file("create", path);
    }
    remove();
    try {
      flush_directory(folder_of(path));
    } catch (...) {  // the caller is told that there is no such file
      ::unlink(path.c_str());
      throw;
    }
    return true;
  }

 private:
  // Owner and mode of the file that this one will replace.
  void keep(const Descriptor& file, const struct stat& like) const {
    struct stat now {};
    if (::fstat(file.number(), &now) != 0) fail_on_file("read", path_);
    if ((now.st_uid != like.st_uid || now.st_gid != like.st_gid) &&
        ::fchown(file.number(), like.st_uid, like.st_gid) != 0)
      fail_on_file("preserve the owner of", path_);
    if (::fchmod(file.number(), like.st_mode & 07777) != 0)
      fail_on_file("preserve the mode of", path_);
  }
  void remove() noexcept {
    if (there_) ::unlink(path_.c_str());
    there_ = false;
  }
  std::filesystem::path path_;
  bool there_ = false;
};

template <class F>
auto naming(const std::filesystem::path& path, F&& write) {
  try {
    return write();
  } catch (const Error& error) {
    fail(error.code(), error.op(), "cannot write {}: {}", path.string(), error.sentence());
  }
}

// The caller must own a confidential file, and nobody else may be able to read it.
void require_own(const Descriptor& file, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) fail_on_file("read", path);
  if (status.st_uid != ::geteuid())
    invalid_input("file",
                  "it is confidential, and the file belongs to another user (number {}); give "
                  "another file",
                  status.st_uid);
  if ((status.st_mode & 077) != 0)
    invalid_input("file",
                  "it is confidential, and others may read or write the file (mode {:o}); run: "
                  "chmod 600 {}",
                  status.st_mode & 07777, path.string());
}

// The file of lines, locked: the one that has this name now, even if it was replaced meanwhile.
Descriptor locked(const std::filesystem::path& path, Access access, bool& created) {
  const bool follows = access == Access::kShared;
  while (true) {
    struct stat held {
    }, named{};
    if (!follows && ::lstat(path.c_str(), &named) == 0 && S_ISLNK(named.st_mode))
      invalid_input("file", "it is confidential, and the name is a symbolic link; give a file");
    // A link to a file is followed; a dangling link does not create a file at its target.
    const bool is_there = ::access(path.c_str(), F_OK) == 0;
    created = !is_there;
    Descriptor file(
        path, O_RDWR | O_NOCTTY | (is_there ? 0 : O_CREAT) | (is_there && follows ? 0 : O_NOFOLLOW),
        mode_of(access));
    if (::fstat(file.number(), &held) != 0) fail_on_file("read", path);
    if (!S_ISREG(held.st_mode))
      io_error("file", "{} is a device, a pipe or a socket; give a file", path.string());
    if (!follows) require_own(file, path);
    while (::flock(file.number(), LOCK_EX) != 0)
      if (errno != EINTR) fail_on_file("lock", path);
    if (::stat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
        held.st_ino == named.st_ino)
      return file;
  }
}

Bytes content_of(const Descriptor& file, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) fail_on_file("read", path);
  Bytes text(static_cast<std::size_t>(status.st_size));
  for (std::size_t have = 0; have < text.size();) {
    const ssize_t got =
        ::pread(file.number(), text.data() + have, text.size() - have, static_cast<off_t>(have));
    if (got < 0 && errno != EINTR) fail_on_file("read", path);
    if (got == 0) text.resize(have);
    if (got > 0) have += static_cast<std::size_t>(got);
  }
  return text;
}

}  // namespace

void write_atomically(const std::filesystem::path& path, ByteView bytes, Access access) {
  naming(path, [&] { Neighbour(path, bytes, mode_of(access)).replace(path); });
}

void write_new(const std::filesystem::path& path, ByteView bytes, Access access) {
  if (!naming(path, [&] { return Neighbour(path, bytes, mode_of(access)).become(path); }))
    invalid_input("file", "{} already exists and will not be overwritten; choose another name",
                  path.string());
}

struct LinesFile::Impl {
  Impl(const std::filesystem::path& name, Access access)
      : path(name), file(locked(name, access, created)) {
    try {
      if (::fstat(file.number(), &status) != 0) fail_on_file("read", path);
      std::error_code none;
      // A link to the file stays. A confidential file is not reached by a link.
      target = access == Access::kShared ? std::filesystem::canonical(path, none) : path;
      if (none) fail_on_file("find", path);
    } catch (...) {
      remove_unused();
      throw;
    }
  }
  ~Impl() { remove_unused(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // A temporary file next to it, with the content of the file and these lines appended.
  Neighbour extended(std::string_view lines) const {
    Bytes text = content_of(file, path);
    if (!text.empty() && text.back() != '\n') text.push_back('\n');
    text.insert(text.end(), lines.begin(), lines.end());
    return {target, text, 0600, &status};
  }

  // Under the lock: a process that waits for it sees that the name is gone, and starts again.
  void remove_unused() const noexcept {
    struct stat held {
    }, named{};
    if (created && ::fstat(file.number(), &held) == 0 && held.st_size == 0 &&
        ::lstat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
        held.st_ino == named.st_ino)
      ::unlink(path.c_str());
  }

  std::filesystem::path path, target;
  bool created = false;
  Descriptor file;
  struct stat status {};
};

LinesFile::LinesFile(const std::filesystem::path& path, Access access, std::size_t room)
    : impl_(naming(path, [&] {
        auto impl = std::make_unique<Impl>(path, access);
        if (room > 0) impl->extended(std::string(room, '\n'));
        return impl;
      })) {}
LinesFile::~LinesFile() = default;

void LinesFile::append(std::string_view lines) {
  // Replaced as a whole: a process killed in the middle of a write would leave half a line.
  naming(impl_->path, [&] { impl_->extended(lines).replace(impl_->target); });
}

void append_lines(const std::filesystem::path& path, std::string_view lines, Access access) {
  LinesFile(path, access).append(lines);
}

namespace {

// /dev/stdin, and /dev/fd/63 or /proc/self/fd/63 of a shell's <(…). Any other pipe or device is a
// mistake: reading it would block, or never end.
bool names_a_stream(const std::filesystem::path& path) {
  const std::string name = path.lexically_normal().string();
  return name.starts_with("/dev/") || name.starts_with("/proc/");
}

// Appends the file to `out`, in pieces.
template <class Out>
void read_into(Out& out, const std::filesystem::path& path, std::size_t piece, std::size_t most) {
  const bool is_stream = names_a_stream(path);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) cannot_open(path, errno);
  const Descriptor file(path, is_stream ? O_RDONLY : O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (::fstat(file.number(), &status) != 0) fail_on_file("read", path);
  if (S_ISDIR(status.st_mode)) cannot_open(path, EISDIR);
  if (!is_stream && !S_ISREG(status.st_mode))
    io_error("file", "cannot read {}: it is a device, a pipe or a socket, not a file",
             path.string());
  while (true) {
    const std::size_t have = out.size();
    out.resize(have + piece);
    const ssize_t got = ::read(file.number(), out.data() + have, piece);
    if (got < 0 && errno != EINTR) fail_on_file("read", path);
    out.resize(have + (got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got == 0) return;
    if (out.size() > most) malformed("file", "{} is larger than {} bytes", path.string(), most);
  }
}

}  // namespace

Bytes read_file(const std::filesystem::path& path, std::size_t most) {
  Bytes out;
  read_into(out, path, std::size_t{1} << 20, most);
  return out;
}

SecretBytes read_secret(const std::filesystem::path& path) {
  SecretBytes out;
  read_into(out, path, 4096, std::size_t{1} << 16);
  return out;
}

Digest sha256_of(std::istream& in) {
  Sha256 hash;
  Bytes piece(std::size_t{1} << 20);
  while (in) {
    in.read(reinterpret_cast<char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
    hash.update(ByteView(piece).first(static_cast<std::size_t>(in.gcount())));
  }
  return hash.finish();
}

Digest sha256_of_file(const std::filesystem::path& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path)) cannot_open(path, in ? EISDIR : errno);
  const Digest digest = sha256_of(in);
  if (in.bad()) io_error("file", "cannot read {} to its end", path.string());
  return digest;
}

}  // namespace discreet
