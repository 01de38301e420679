#pragma once

#include <filesystem>
#include <string_view>

namespace discreet::admission {

// Throws kInvalidInput if anyone but its owner may read or write the file of a private key without
// a passphrase. pem: the content of the file.
void require_private(const std::filesystem::path& path, std::string_view pem);

}  // namespace discreet::admission
