#pragma once

#include <filesystem>
#include <string_view>

namespace discreet::admission {

// Throws kInvalidInput if others than its owner may read or write the file of a private key that no
// passphrase protects. pem: what was read from it.
void require_private(const std::filesystem::path& path, std::string_view pem);

}  // namespace discreet::admission
