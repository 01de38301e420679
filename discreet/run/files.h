#pragma once

#include <cstddef>
#include <filesystem>

#include "discreet/base/bytes.h"

// Files that a killed process or a full disk leaves as they were.
namespace discreet::run {

// Who may read a file.
enum class Access {
  kShared,  // as the process's umask allows
  kOwner,   // mode 0600: keys and confidential state
};

// Puts `bytes` at `path`: whoever looks, also after a crash, sees the old file or the new one,
// never a part. Written to a neighbour with a name of its own, flushed to the disk, renamed over
// `path`, and the directory flushed. Throws kIoError, naming the path and the system's reason; the
// old file is then as it was and the neighbour is gone.
void write_atomically(const std::filesystem::path& path, ByteView bytes,
                      Access access = Access::kShared);

// The whole file. Throws kIoError if it cannot be read, kMalformed if it has more than `most`
// bytes.
Bytes read_file(const std::filesystem::path& path, std::size_t most = std::size_t{1} << 30);

}  // namespace discreet::run
