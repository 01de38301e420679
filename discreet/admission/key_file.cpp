#include "discreet/admission/key_file.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include "discreet/admission/ed25519.h"
#include "discreet/base/error.h"

namespace discreet::admission {

void require_private(const std::filesystem::path& path, std::string_view pem) {
  struct stat status {};
  // A pipe or terminal has no mode that matters.
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  if ((status.st_mode & 077) == 0 || SigningKey::is_encrypted(pem)) return;
  invalid_input("key", "others may read the private key {} (mode {:o}); run: chmod 600 {}",
                path.string(), status.st_mode & 07777, path.string());
}

}  // namespace discreet::admission
