#pragma once

#include <filesystem>

#include "discreet/random/key.h"

namespace discreet::run {

// `secret.key` of a run: its master key, of which noise, sampling coins and the seal of checkpoints
// are derived streams. One line "discreet-secret-1 " and 64 hexadecimal digits; mode 0600. Nothing
// else ever holds it.

// Makes a new key from the operating system and writes it. Throws kIoError if the file exists
// already: a key is never replaced.
random::Key create_secret(const std::filesystem::path& path);

// Reads it. Throws kIoError if it cannot be read or others may read it (say `chmod 600`),
// kMalformed if it is no key. No sentence quotes what the file holds.
random::Key load_secret(const std::filesystem::path& path);

}  // namespace discreet::run
