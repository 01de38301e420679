#pragma once

#include <cstddef>
#include <filesystem>
#include <istream>
#include <string_view>

#include "discreet/base/bytes.h"
#include "discreet/base/hash.h"
#include "discreet/base/secret_memory.h"

// Files that a killed process or a full disk leaves as they were.
namespace discreet {

// Who may read a file.
enum class Access {
  kShared,  // as the process's umask allows
  kOwner,   // mode 0600: keys and confidential state
};

// Puts `bytes` at `path`: a reader, also after a crash, sees the old file or the new one, never a
// part. Written to a neighbour, flushed to the disk, renamed over `path`, and the directory
// flushed. The neighbour has a random name and must not exist: another user of the folder can
// neither guess it nor have it opened through a link. Throws kIoError, naming the path and the
// system's reason; the old file is then as it was and the neighbour is gone.
void write_atomically(const std::filesystem::path& path, ByteView bytes,
                      Access access = Access::kShared);

// The same for a file that must not exist yet: kInvalidInput if it does, also if another process
// creates it meanwhile. For keys, which are never overwritten.
void write_new(const std::filesystem::path& path, ByteView bytes, Access access = Access::kShared);

// Appends whole lines to a file of lines, or creates it. All of them are there and durable when
// this returns, or none if it throws kIoError; processes that append at the same time wait for each
// other. Keeps the file's owner and mode, and a symbolic link to it. access: of a new file.
void append_lines(const std::filesystem::path& path, std::string_view lines,
                  Access access = Access::kShared);

// The whole file. Throws kIoError if it cannot be read, kMalformed if it has more than `most`
// bytes.
Bytes read_file(const std::filesystem::path& path, std::size_t most = std::size_t{1} << 30);
// The same for a key or a passphrase: at most 64 KiB, in secret memory only.
SecretBytes read_secret(const std::filesystem::path& path);
// Of what a stream still holds, in pieces: a model need not fit into memory. The caller checks
// in.bad().
Digest sha256_of(std::istream& in);

}  // namespace discreet
