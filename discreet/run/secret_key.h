#pragma once

#include <filesystem>

#include "discreet/random/key.h"

namespace discreet::run {

// `secret.key` of a run: its master key. Noise, sampling coins and the seal of checkpoints use
// streams derived from it. One line "discreet-secret-1 " and 64 hexadecimal digits; mode 0600. No
// other file contains it.

// Creates a new key from the operating system's randomness and writes it. Throws kIoError if the
// file exists: a key is never replaced.
random::Key create_secret(const std::filesystem::path& path);

// Reads the key. Throws kIoError if the file cannot be read, or if others may read it (use `chmod
// 600`); kMalformed if it does not contain a key. No error sentence quotes the content of the file.
random::Key load_secret(const std::filesystem::path& path);

// The same, for a key under which noise is drawn that will be released: throws kIoError also if the
// file belongs to another user than the process.
random::Key load_own_secret(const std::filesystem::path& path);

}  // namespace discreet::run
