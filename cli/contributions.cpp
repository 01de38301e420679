#include "cli/contributions.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "discreet/admission/key_file.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"

namespace discreet::cli {
namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidInput, "input", sentence);
}

void require_readable(const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0)
    refuse(fmt::format("'{}' cannot be opened: {}", path, std::strerror(errno)));
  if (std::filesystem::is_directory(path))
    refuse(fmt::format("'{}' is a directory; give a file", path));
}

SecretBytes read_secret_input(const std::string& path) {
  require_readable(path);
  return read_secret(path);
}

}  // namespace

std::string read_input(const std::string& path) {
  require_readable(path);
  const Bytes bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

std::vector<admission::Anchored> read_anchors(const std::string& path) {
  return admission::parse_anchors(read_input(path), path);
}

admission::Statements read_statements(const std::string& path) {
  return path.empty() ? admission::Statements()
                      : admission::parse_statements(read_input(path), path);
}

SecretBytes read_passphrase(const std::string& path) {
  if (path.empty()) return {};
  SecretBytes text = read_secret_input(path);
  text.resize(std::min(text_of(text).find_first_of("\r\n"), text.size()));
  if (text.empty()) refuse(fmt::format("'{}' has no passphrase in its first line", path));
  return text;
}

admission::SigningKey read_key(const std::string& path, const std::string& passphrase_file) {
  const SecretBytes pem = read_secret_input(path), passphrase = read_passphrase(passphrase_file);
  admission::require_private(path, text_of(pem));
  return admission::SigningKey::from_pem(text_of(pem), text_of(passphrase));
}

}  // namespace discreet::cli
