#include "discreet/run/secret.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <sys/stat.h>

#include <algorithm>

#include "discreet/base/error.h"
#include "discreet/run/descriptor_impl.h"
#include "discreet/run/files.h"

namespace discreet::run {
namespace {

constexpr std::string_view kPrefix = "discreet-secret-1 ";
constexpr std::size_t kLength = kPrefix.size() + 2 * random::Key::kSize + 1;

// Bytes that are overwritten when they go.
struct Wiped {
  Bytes bytes;
  ~Wiped() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
};

[[noreturn]] void malformed(const std::filesystem::path& path) {
  throw Error(ErrorCode::kMalformed, "secret.key",
              fmt::format("{} holds no key: it must be one line of '{}' and 64 hexadecimal digits",
                          path.string(), kPrefix));
}

int digit(std::uint8_t c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

random::Key create_secret(const std::filesystem::path& path) {
  random::Key key = random::Key::from_system();
  Wiped line;
  line.bytes.reserve(kLength);
  line.bytes.assign(kPrefix.begin(), kPrefix.end());
  for (const std::uint8_t byte : key.secret_bytes()) {
    line.bytes.push_back(static_cast<std::uint8_t>("0123456789abcdef"[byte >> 4]));
    line.bytes.push_back(static_cast<std::uint8_t>("0123456789abcdef"[byte & 15]));
  }
  line.bytes.push_back('\n');
  try {  // whole or not at all: half a key would keep a killed run from being started again
    write_new(path, line.bytes, Access::kOwner);
  } catch (const Error& error) {
    throw Error(ErrorCode::kIoError, error.op(), error.sentence());
  }
  return key;
}

random::Key load_secret(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) fail("read", path);
  if ((status.st_mode & 077) != 0)
    throw Error(
        ErrorCode::kIoError, "secret.key",
        fmt::format("others may read {} (mode {:o}); the noise is only secret with chmod 600",
                    path.string(), status.st_mode & 07777));
  Wiped line{read_file(path, 4096)};
  if (line.bytes.size() != kLength || line.bytes.back() != '\n' ||
      !std::equal(kPrefix.begin(), kPrefix.end(), line.bytes.begin()))
    malformed(path);
  Wiped key;
  for (std::size_t i = kPrefix.size(); i + 1 < kLength; i += 2) {
    const int high = digit(line.bytes[i]);
    const int low = digit(line.bytes[i + 1]);
    if (high < 0 || low < 0) malformed(path);
    key.bytes.push_back(static_cast<std::uint8_t>(high * 16 + low));
  }
  return random::Key::from_bytes(key.bytes);
}

}  // namespace discreet::run
