#include "discreet/run/secret_key.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "discreet/base/error.h"
#include "discreet/base/file_descriptor.h"
#include "discreet/base/files.h"

namespace discreet::run {
namespace {

constexpr std::string_view kPrefix = "discreet-secret-1 ";
constexpr std::size_t kLength = kPrefix.size() + 2 * random::Key::kSize + 1;

[[noreturn]] void no_key_in(const std::filesystem::path& path) {
  malformed("secret.key",
            "{} contains no key: it must be one line of '{}' and 64 hexadecimal digits",
            path.string(), kPrefix);
}

int digit(std::uint8_t c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

random::Key create_secret(const std::filesystem::path& path) {
  random::Key key = random::Key::from_system();
  SecretBytes line(kPrefix.begin(), kPrefix.end());
  for (const std::uint8_t byte : key.secret_bytes()) {
    line.push_back(static_cast<std::uint8_t>("0123456789abcdef"[byte >> 4]));
    line.push_back(static_cast<std::uint8_t>("0123456789abcdef"[byte & 15]));
  }
  line.push_back('\n');
  try {  // whole or not at all: half a key would keep a killed run from being started again
    write_new(path, line, Access::kOwner);
  } catch (const Error& error) {
    io_error(error.op(), "{}", error.sentence());
  }
  return key;
}

random::Key load_own_secret(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && status.st_uid != ::geteuid())
    io_error("secret.key",
             "{} belongs to another user, who knows the noise; run as that user, or start another "
             "run",
             path.string());
  return load_secret(path);
}

random::Key load_secret(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) fail_on_file("read", path);
  if ((status.st_mode & 077) != 0)
    io_error("secret.key",
             "others may read {} (mode {:o}), so the noise is not secret; run: chmod 600",
             path.string(), status.st_mode & 07777);
  const SecretBytes line = read_secret(path);
  if (line.size() != kLength || line.back() != '\n' ||
      !std::equal(kPrefix.begin(), kPrefix.end(), line.begin()))
    no_key_in(path);
  SecretBytes key;
  for (std::size_t i = kPrefix.size(); i + 1 < kLength; i += 2) {
    const int high = digit(line[i]);
    const int low = digit(line[i + 1]);
    if (high < 0 || low < 0) no_key_in(path);
    key.push_back(static_cast<std::uint8_t>(high * 16 + low));
  }
  return random::Key::from_bytes(key);
}

}  // namespace discreet::run
