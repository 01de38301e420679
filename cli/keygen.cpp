#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
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
  const SigningKey signer = read_key(options.key, options.passphrase_file);
  append_statement(options, sign_revocation(signer, ids, now()));
  if (options.json)
    print("{}\n", nlohmann::json{{"revoked", options.revoke}}.dump());
  else
    print("revocation of {} key{} added to {}\n", ids.size(), ids.size() == 1 ? "" : "s",
          options.statements);
  const KeyId own = signer.public_key().id();
  if (std::any_of(ids.begin(), ids.end(), [&](const KeyId& id) { return id != own; }))
    print(stderr,
          "warning: key {} can revoke other keys only if it is the authority of the corpus policy; "
          "under any other policy this changes nothing: let the revoked key or the authority "
          "sign\n",
          to_hex(own));
}

// Files that belong together: all of them stay, or none does.
class NewFiles {
 public:
  NewFiles() = default;
  NewFiles(const NewFiles&) = delete;
  NewFiles& operator=(const NewFiles&) = delete;
  ~NewFiles() {
    for (const std::string& path : written_) ::unlink(path.c_str());
  }
  void write(const std::string& path, ByteView bytes, Access access) {
    written_.reserve(written_.size() + 1);
    write_new(path, bytes, access);
    written_.push_back(path);
  }
  void keep() { written_.clear(); }

 private:
  std::vector<std::string> written_;
};

// A rotation that is in the file names the new key: the key then stays, even if the disk could not
// make the statement durable.
void append_rotation(const Options& options, const Bytes& rotation, NewFiles& files) {
  try {
    append_statement(options, rotation);
  } catch (const Error&) {
    if (::access(options.statements.c_str(), F_OK) == 0) {
      const Bytes there = read_file(options.statements);
      if (std::string(there.begin(), there.end()).find(to_hex(rotation)) != std::string::npos)
        files.keep();
    }
    throw;
  }
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
  const SecretBytes passphrase = read_passphrase(options.passphrase_file);
  std::string pem = key.to_pem(text_of(passphrase));
  if (SigningKey::from_pem(pem, text_of(passphrase)).public_key() != key.public_key())
    throw Error(ErrorCode::kIoError, "keygen",
                "the new key cannot be read back, so it was not written; try again, and check the "
                "machine if this repeats");
  std::optional<Bytes> rotation;
  if (!options.rotate.empty())
    rotation = sign_rotation(read_key(options.rotate, options.rotate_passphrase_file), key, now());
  // The public half first: if the disk is full, no private key stays behind without it.
  NewFiles files;
  files.write(shared, bytes_of(key.public_key().to_pem()), Access::kShared);
  files.write(secret, bytes_of(pem), Access::kOwner);
  std::fill(pem.begin(), pem.end(), '\0');
  if (rotation) append_rotation(options, *rotation, files);
  files.keep();
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

void add_keygen(Command& command) {
  auto options = std::make_shared<Options>();
  command.argument("NAME", options->prefix, "Write NAME.key and NAME.pub").writes_file();
  command
      .option("--passphrase-file", "FILE", options->passphrase_file,
              "File whose first line encrypts the new key (scrypt), or opens --key")
      .reads_file();
  command
      .option("--rotate", "FILE", options->rotate,
              "Private key that the new one replaces; both sign the rotation")
      .reads_file();
  command
      .option("--rotate-passphrase-file", "FILE", options->rotate_passphrase_file,
              "File holding the passphrase of the key given to --rotate")
      .reads_file();
  command.option("--revoke", "ID", options->revoke, "Revoke a key instead of creating one")
      .excludes({"NAME", "--rotate", "--rotate-passphrase-file"});
  command
      .option("--key", "FILE", options->key,
              "Private key that signs a revocation: the revoked one or the authority's")
      .reads_file();
  command
      .option("--statements", "FILE", options->statements,
              "Append the rotation or revocation to this file")
      .writes_file();
  command.json(options->json);
  command.action([options] { options->revoke.empty() ? generate(*options) : revoke(*options); });
}

}  // namespace discreet::cli
