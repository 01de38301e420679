#pragma once

#include <cstddef>
#include <filesystem>
#include <istream>
#include <memory>
#include <string_view>

#include "discreet/base/bytes.h"
#include "discreet/base/hash.h"
#include "discreet/base/secret_memory.h"

// Files that survive a killed process and a full disk unchanged.
namespace discreet {

// The permissions of a new file.
enum class Access {
  kShared,  // as the process's umask allows
  kOwner,   // mode 0600: keys and confidential state
};

// Replaces the content of `path` by `bytes`. A reader sees the old file or the new one, never a
// part, even after a crash: the bytes go to a temporary file in the same directory, are flushed to
// disk, renamed over `path`, and the directory is flushed. The temporary file has a random name and
// must not exist, so another user of the directory can neither guess it nor redirect it through a
// link. Throws kIoError with the path and the system's reason; the temporary file is then removed
// and the old file unchanged, unless only the directory could not be flushed: then the new file is
// in place, but may not survive a crash.
void write_atomically(const std::filesystem::path& path, ByteView bytes,
                      Access access = Access::kShared);

// The same for a file that must not exist yet; for keys, which are never overwritten. Throws
// kInvalidInput if the file exists, even if another process creates it during the call.
void write_new(const std::filesystem::path& path, ByteView bytes, Access access = Access::kShared);

// Appends whole lines to a file, or creates it. When this returns, all lines are durable; if it
// throws kIoError, all or none are there, as write_atomically() says. Processes that append at the
// same time wait for each other. Preserves the owner and mode of an existing file. kShared: a
// symbolic link is followed and stays. kOwner: the lines are confidential; throws kInvalidInput for
// a symbolic link, and for a file that belongs to another user or has any permission for others.
void append_lines(const std::filesystem::path& path, std::string_view lines,
                  Access access = Access::kShared);

// The same in two parts, for lines about something that cannot be undone: the constructor opens or
// creates the file and locks it, and throws if it cannot be written. If nothing is appended, a file
// that was created is removed.
class LinesFile {
 public:
  // room: throws kIoError unless so many more bytes can be written now.
  LinesFile(const std::filesystem::path& path, Access access, std::size_t room = 0);
  ~LinesFile();
  void append(std::string_view lines);  // call it once

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Throws the error of every reader for a file that cannot be opened: the path, the reason (an
// errno) and what to do. kInvalidInput if it is missing, or a directory where a file is expected or
// the reverse; kIoError otherwise.
[[noreturn]] void cannot_open(const std::filesystem::path& path, int reason);

// Reads the whole file. Throws as cannot_open() does, kIoError if the file cannot be read to its
// end, kMalformed if it has more than `most` bytes.
Bytes read_file(const std::filesystem::path& path, std::size_t most = std::size_t{1} << 30);
// The same for a key or a passphrase: at most 64 KiB, held only in secret memory.
SecretBytes read_secret(const std::filesystem::path& path);
// The digest of the rest of a stream, read in pieces: a model need not fit into memory. The caller
// must check in.bad().
Digest sha256_of(std::istream& in);
// That of a file. Throws as cannot_open() does, kIoError if it cannot be read to its end.
Digest sha256_of_file(const std::filesystem::path& path);

}  // namespace discreet
