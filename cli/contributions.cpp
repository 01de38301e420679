#include "cli/contributions.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
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

}  // namespace

std::string read_input(const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0)
    refuse(fmt::format("'{}' cannot be opened: {}", path, std::strerror(errno)));
  if (std::filesystem::is_directory(path))
    refuse(fmt::format("'{}' is a directory; give a file", path));
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

std::string read_passphrase(const std::string& path) {
  if (path.empty()) return {};
  std::string text = read_input(path);
  text.resize(std::min(text.find_first_of("\r\n"), text.size()));
  if (text.empty()) refuse(fmt::format("'{}' has no passphrase in its first line", path));
  return text;
}

admission::SigningKey read_key(const std::string& path, const std::string& passphrase_file) {
  std::string pem = read_input(path);
  std::string passphrase = read_passphrase(passphrase_file);
  struct Wipe {
    std::string& text;
    ~Wipe() { OPENSSL_cleanse(text.data(), text.size()); }
  };
  const Wipe wipe_pem{pem}, wipe_passphrase{passphrase};
  admission::require_private(path, pem);
  return admission::SigningKey::from_pem(pem, passphrase);
}

}  // namespace discreet::cli
