#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace discreet::data {

// A file read sequentially in pieces; gzip is detected and unpacked. Memory does not grow with the
// file.
class Input {
 public:
  // Throws kIoError, naming the path and the reason, if it cannot be opened.
  explicit Input(const std::filesystem::path& path);
  ~Input();
  Input(Input&&) noexcept;

  // Fills `out` and returns the number of bytes read, which is less than out.size() only at the end
  // of the file. Throws kIoError if reading fails, kMalformed if compressed data is damaged or
  // truncated, or unpacks to more than 64 MiB and 200 times the file's size.
  std::size_t read(std::span<char> out);
  // The next line without its end ("\n" or "\r\n"); false at the end of the file. Lines are
  // numbered from 1. Throws as read, and kMalformed for a line of more than 16 MiB. The view is
  // valid until the next call.
  bool line(std::string_view& text);
  std::size_t line_number() const noexcept { return line_number_; }

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  struct File;
  std::filesystem::path path_;
  std::unique_ptr<File> file_;
  std::size_t line_number_ = 0;
};

}  // namespace discreet::data
