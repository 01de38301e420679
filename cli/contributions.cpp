#include "cli/contributions.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/input.h"
#include "discreet/admission/key_file.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"

namespace discreet::cli {
namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidInput, "input", sentence);
}

SecretBytes read_secret_input(const std::string& path) {
  require_file(path);
  return read_secret(path);
}

}  // namespace

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

void add_passphrase_option(Command& command, std::string& path) {
  command
      .option("--passphrase-file", "FILE", path,
              "File holding the key's passphrase, in its first line")
      .reads_file();
}

admission::SigningKey read_key(const std::string& path, const std::string& passphrase_file) {
  const SecretBytes pem = read_secret_input(path), passphrase = read_passphrase(passphrase_file);
  if (text_of(pem).find("PUBLIC KEY-----") != std::string_view::npos)
    refuse(fmt::format("'{}' is a public key; give the private key, the .key file", path));
  admission::require_private(path, text_of(pem));
  return admission::SigningKey::from_pem(text_of(pem), text_of(passphrase));
}

}  // namespace discreet::cli
