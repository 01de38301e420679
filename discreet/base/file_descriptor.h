#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "discreet/base/bytes.h"

namespace discreet {

// A POSIX file descriptor that closes itself. Every failure is kIoError with path and reason.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags, int mode = 0666);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&&) = delete;

  int number() const noexcept { return number_; }
  void write(ByteView bytes);
  void flush();  // to the disk
  void truncate(std::size_t length);
  void seek_end();

 private:
  std::filesystem::path path_;
  int number_;
};

// Flushes the entries of a directory to the disk.
void flush_directory(const std::filesystem::path& directory);

// Throws kIoError: "cannot WHAT PATH: REASON", from errno.
[[noreturn]] void fail_on_file(const char* what, const std::filesystem::path& path);

}  // namespace discreet
