#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/contributions.h"
#include "cli/print.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"

namespace discreet::cli {
namespace {

using namespace admission;

struct Options {
  std::string prefix;
  std::string passphrase_file;
  std::string rotate;
  std::string rotate_passphrase_file;
  std::vector<std::string> revoke;
  std::string key;
  std::string statements;
  bool json = false;
};

Instant now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

[[noreturn]] void refuse(const char* sentence) {
  throw Error(ErrorCode::kInvalidInput, "keygen", sentence);
}

void append_statement(const Options& options, const Bytes& statement) {
  append_lines(options.statements, nlohmann::json{{"statement", to_hex(statement)}}.dump() + "\n");
}

KeyId parse_id(const std::string& text) {
  const Bytes bytes = from_hex(text);
  KeyId id{};
  if (bytes.size() != id.size()) refuse("a key id is 32 hexadecimal digits, as keygen prints it");
  std::copy(bytes.begin(), bytes.end(), id.begin());
  return id;
}

void revoke(const Options& options) {
  if (options.key.empty() || options.statements.empty())
    refuse("--revoke needs --key, which signs, and --statements, the file to add to");
  std::vector<KeyId> ids;
  for (const std::string& text : options.revoke) ids.push_back(parse_id(text));
  append_statement(options,
                   sign_revocation(read_key(options.key, options.passphrase_file), ids, now()));
  if (options.json)
    print("{}\n", nlohmann::json{{"revoked", options.revoke}}.dump());
  else
    print("revocation of {} key{} added to {}\n", ids.size(), ids.size() == 1 ? "" : "s",
          options.statements);
}

void generate(const Options& options) {
  if (options.prefix.empty()) refuse("give a name: 'discreet keygen hospital'");
  if (options.rotate.empty() != options.statements.empty())
    refuse("--rotate and --statements go together");
  const std::string secret = options.prefix + ".key", shared = options.prefix + ".pub";
  for (const std::string& path : {secret, shared})
    if (::access(path.c_str(), F_OK) == 0)
      throw Error(
          ErrorCode::kInvalidInput, "keygen",
          fmt::format("'{}' exists; a key is never overwritten: choose another name", path));
  const SigningKey key = SigningKey::generate();
  std::string pem = key.to_pem(text_of(read_passphrase(options.passphrase_file)));
  write_new(secret, bytes_of(pem), Access::kOwner);
  std::fill(pem.begin(), pem.end(), '\0');
  write_new(shared, bytes_of(key.public_key().to_pem()));
  if (!options.rotate.empty())
    append_statement(
        options,
        sign_rotation(read_key(options.rotate, options.rotate_passphrase_file), key, now()));
  const std::string id = to_hex(key.public_key().id()), hex = to_hex(key.public_key().bytes());
  if (options.json) {
    print("{}\n",
          nlohmann::json{
              {"id", id}, {"public_key", hex}, {"key_file", secret}, {"public_key_file", shared}}
              .dump());
  } else {
    print("{}   private, mode 0600{}\n{}   public\n  id          {}\n  public_key  {}\n", secret,
          options.passphrase_file.empty() ? "" : ", under the passphrase", shared, id, hex);
  }
}

}  // namespace

void add_keygen(CLI::App& command, int&) {
  auto options = std::make_shared<Options>();
  command.add_option("NAME", options->prefix, "Writes NAME.key and NAME.pub");
  command.add_option("--passphrase-file", options->passphrase_file,
                     "Its first line encrypts the private key (scrypt), or opens --key");
  command.add_option("--rotate", options->rotate,
                     "Private key that the new one replaces; both sign");
  command.add_option("--rotate-passphrase-file", options->rotate_passphrase_file,
                     "Passphrase of the key given to --rotate");
  command.add_option("--revoke", options->revoke, "Instead of making a key: ids to revoke");
  command.add_option("--key", options->key,
                     "Private key that signs a revocation: the revoked one or the authority");
  command.add_option("--statements", options->statements,
                     "File of rotations and revocations to add to");
  command.add_flag("--json", options->json, "Print one JSON object");
  command.callback([options] { options->revoke.empty() ? generate(*options) : revoke(*options); });
}

}  // namespace discreet::cli
