#include "discreet/base/file_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "discreet/base/error.h"

namespace discreet {

void fail_on_file(const char* what, const std::filesystem::path& path) {
  const std::string reason = std::generic_category().message(errno);
  io_error("file", "cannot {} {}: {}", what, path.string(), reason);
}

Descriptor::Descriptor(const std::filesystem::path& path, int flags, int mode)
    : path_(path), number_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
  if (number_ < 0) fail_on_file("open", path);
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
    if (written < 0) fail_on_file("write", path_);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void Descriptor::flush() {
  if (::fsync(number_) != 0) fail_on_file("flush", path_);
}

void Descriptor::truncate(std::size_t length) {
  if (::ftruncate(number_, static_cast<off_t>(length)) != 0) fail_on_file("shorten", path_);
}

void Descriptor::seek_end() {
  if (::lseek(number_, 0, SEEK_END) < 0) fail_on_file("seek in", path_);
}

void flush_directory(const std::filesystem::path& directory) {
  Descriptor(directory, O_RDONLY | O_DIRECTORY).flush();
}

}  // namespace discreet
