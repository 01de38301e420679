#include "discreet/base/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
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

// A neighbour of `path` with `bytes` on the disk; removed unless it was moved.
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

// The file of lines, locked: the one that has this name now, whatever was put there meanwhile.
Descriptor locked(const std::filesystem::path& path, Access access) {
  while (true) {
    // A link to a file is followed; one to nothing makes no file where it points.
    const bool is_there = ::access(path.c_str(), F_OK) == 0;
    Descriptor file(path, O_RDWR | O_NOCTTY | (is_there ? 0 : O_CREAT | O_NOFOLLOW),
                    mode_of(access));
    while (::flock(file.number(), LOCK_EX) != 0)
      if (errno != EINTR) fail_on_file("lock", path);
    struct stat held {
    }, named{};
    if (::fstat(file.number(), &held) != 0) fail_on_file("read", path);
    if (::stat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
        held.st_ino == named.st_ino)
      return file;
  }
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

void append_lines(const std::filesystem::path& path, std::string_view lines, Access access) {
  naming(path, [&] {
    const Descriptor lock = locked(path, access);
    struct stat status {};
    if (::fstat(lock.number(), &status) != 0) fail_on_file("read", path);
    // Replaced as a whole: a process killed in the middle of a write would leave half a line.
    std::error_code none;
    const std::filesystem::path file = std::filesystem::canonical(path, none);
    if (none) fail_on_file("find", path);
    Bytes text = read_file(file);
    if (!text.empty() && text.back() != '\n') text.push_back('\n');
    text.insert(text.end(), lines.begin(), lines.end());
    Neighbour(file, text, 0600, &status).replace(file);
  });
}

namespace {

// /dev/stdin, and /dev/fd/63 or /proc/self/fd/63 of a shell's <(…). Elsewhere a pipe or a device
// is not what was meant: it would be waited for, or read without end.
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

}  // namespace discreet
