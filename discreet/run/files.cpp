#include "discreet/run/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "discreet/base/error.h"
#include "discreet/run/descriptor_impl.h"

namespace discreet::run {

void fail(const char* what, const std::filesystem::path& path) {
  const std::string reason = std::generic_category().message(errno);
  throw Error(ErrorCode::kIoError, "file",
              fmt::format("cannot {} {}: {}", what, path.string(), reason));
}

Descriptor::Descriptor(const std::filesystem::path& path, int flags, int mode)
    : path_(path), number_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
  if (number_ < 0) fail("open", path);
}

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : path_(std::move(other.path_)), number_(std::exchange(other.number_, -1)) {}

void Descriptor::write(ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(number_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", path_);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void Descriptor::flush() {
  if (::fsync(number_) != 0) fail("flush", path_);
}

void Descriptor::truncate(std::size_t length) {
  if (::ftruncate(number_, static_cast<off_t>(length)) != 0) fail("shorten", path_);
}

void Descriptor::seek_end() {
  if (::lseek(number_, 0, SEEK_END) < 0) fail("seek in", path_);
}

void flush_directory(const std::filesystem::path& directory) {
  Descriptor(directory, O_RDONLY | O_DIRECTORY).flush();
}

void write_atomically(const std::filesystem::path& path, ByteView bytes, Access access) {
  std::filesystem::path directory = path.parent_path();
  if (directory.empty()) directory = ".";
  // One writer per process and path at a time; the process number keeps two processes apart.
  const std::filesystem::path neighbour =
      directory / fmt::format(".{}.{}.part", path.filename().string(), ::getpid());
  try {
    {
      Descriptor file(neighbour, O_WRONLY | O_CREAT | O_TRUNC,
                      access == Access::kOwner ? 0600 : 0666);
      file.write(bytes);
      file.flush();
    }
    if (::rename(neighbour.c_str(), path.c_str()) != 0) fail("replace", path);
  } catch (const Error& error) {
    ::unlink(neighbour.c_str());
    throw Error(error.code(), error.op(),
                fmt::format("cannot write {}: {}", path.string(), error.sentence()));
  }
  flush_directory(directory);
}

Bytes read_file(const std::filesystem::path& path, std::size_t most) {
  const Descriptor file(path, O_RDONLY);
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) fail("read", path);
  if (S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    fail("read", path);
  }
  Bytes out;
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  while (true) {
    const std::size_t have = out.size();
    out.resize(have + kPiece);
    const ssize_t got = ::read(file.number(), out.data() + have, kPiece);
    if (got < 0 && errno != EINTR) fail("read", path);
    out.resize(have + (got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got == 0) return out;
    if (out.size() > most)
      throw Error(ErrorCode::kMalformed, "file",
                  fmt::format("{} has more than {} bytes", path.string(), most));
  }
}

}  // namespace discreet::run
