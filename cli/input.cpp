#include "cli/input.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "discreet/base/error.h"
#include "discreet/base/files.h"

namespace discreet::cli {
namespace {

void require_readable(const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0) cannot_open(path, errno);
}

}  // namespace

void require_file(const std::string& path) {
  require_readable(path);
  if (std::filesystem::is_directory(path)) cannot_open(path, EISDIR);
}

void require_folder(const std::string& path) {
  require_readable(path);
  if (!std::filesystem::is_directory(path)) cannot_open(path, ENOTDIR);
}

std::string read_input(const std::string& path) {
  require_file(path);
  const Bytes bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

std::string read_config_file(const std::string& path) {
  constexpr std::size_t kMost = (std::size_t{1} << 20) + 1;
  struct Close {
    void operator()(std::FILE* file) const {
      if (file != stdin) std::fclose(file);
    }
  };
  if (path != "-") require_file(path);
  const std::unique_ptr<std::FILE, Close> file(path == "-" ? stdin
                                                           : std::fopen(path.c_str(), "rb"));
  if (!file) cannot_open(path, errno);
  std::string text(kMost, '\0');
  text.resize(std::fread(text.data(), 1, kMost, file.get()));
  if (std::ferror(file.get()) != 0) io_error("input", "'{}' could not be read to its end", path);
  return text;
}

}  // namespace discreet::cli
