#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "discreet/base/bytes.h"

namespace fuzz {

// A file in memory, if the system has such a folder, for parsers that take a path. One per name and
// process; removed with the object.
class File {
 public:
  explicit File(const std::string& name)
      : path_((std::filesystem::is_directory("/dev/shm") ? std::filesystem::path("/dev/shm")
                                                         : std::filesystem::temp_directory_path()) /
              ("discreet-fuzz-" + std::to_string(::getpid()) + "-" + name)) {
    remove();
  }
  ~File() { remove(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void put(discreet::ByteView bytes) const {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    file.close();
    std::filesystem::permissions(path_, std::filesystem::perms(0600));
  }
  discreet::Bytes bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  // With the files that SQLite puts next to it.
  void remove() const {
    std::error_code ignored;
    for (const char* suffix : {"", "-journal", "-wal", "-shm", ".lock"})
      std::filesystem::remove(path_.string() + suffix, ignored);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace fuzz
