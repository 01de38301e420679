#include "cli/config_file.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "discreet/base/error.h"

namespace discreet::cli {

std::string read_config_file(const std::string& path) {
  constexpr std::size_t kMost = (std::size_t{1} << 20) + 1;
  struct Close {
    void operator()(std::FILE* file) const {
      if (file != stdin) std::fclose(file);
    }
  };
  const std::unique_ptr<std::FILE, Close> file(path == "-" ? stdin
                                                           : std::fopen(path.c_str(), "rb"));
  if (!file) {
    throw Error(ErrorCode::kInvalidInput, "CONFIG",
                fmt::format("'{}' cannot be opened: {}; 'discreet init' writes a configuration",
                            path, std::strerror(errno)));
  }
  std::string text(kMost, '\0');
  text.resize(std::fread(text.data(), 1, kMost, file.get()));
  if (std::ferror(file.get()) != 0) {
    if (errno == EISDIR) {
      throw Error(ErrorCode::kInvalidInput, "CONFIG",
                  fmt::format("'{}' is a directory; give a file", path));
    }
    throw Error(ErrorCode::kIoError, "CONFIG",
                fmt::format("'{}' could not be read to its end", path));
  }
  return text;
}

}  // namespace discreet::cli
