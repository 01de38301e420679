#include "discreet/admission/policy.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/print.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"

namespace discreet::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string file, corpus;
  std::vector<std::string> classes, trusted;
};

constexpr const char* kStarter =
    R"(# The contract of a corpus: what each class of contributions is promised, and who may attest it.
# It is public, and fixed for the life of the corpus: any change needs a new ledger.
corpus: {}                  # also the name of its ledger
accountant: rdp             # rdp, moments or pld
floors: {{clip_norm: 0.01, noise_multiplier: 0.3}}  # the smallest values that a contribution may declare
most_validity_days: 730     # longest validity of a contribution
epoch_seconds: 86400        # how long a verdict of the gate holds
retention_epochs: 12        # epochs after which the ledger replaces contributions by totals
noise: {{stddev: 4, clipping: flat}}  # on the sum of clipped gradients
classes:                    # the least strict promise of each class, and the layers that it may reach
{}keys:                       # whose signatures count, and for which classes
{})";

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string starter(const Options& options) {
  std::string classes, keys;
  for (const std::string& name : options.classes)
    classes += fmt::format(
        "  {}: {{clip_norm: 1, noise_multiplier: 1, most_occurrences: 20, profile: {{whole: "
        "true}}}}\n",
        name);
  for (const std::string& path : options.trusted)
    keys += fmt::format("  - {{name: {}, classes: [{}], public_key: {}}}\n",
                        quoted(fs::path(path).stem().string()), fmt::join(options.classes, ", "),
                        to_hex(admission::PublicKey::from_text(read_input(path)).bytes()));
  std::string text = fmt::format(kStarter, quoted(options.corpus), classes, keys);
  admission::read_policy(text, options.file);  // rejects a name that no policy may contain
  return text;
}

void run(const Options& options) {
  if (options.classes.empty() || options.trusted.empty())
    throw Error(ErrorCode::kInvalidInput, "policy",
                "give --class, the name of a class, and --trust, the public key of a contributor; "
                "each can be repeated");
  if (fs::exists(options.file))
    throw Error(
        ErrorCode::kInvalidInput, "policy",
        fmt::format("'{}' exists; a policy is never overwritten: name another file", options.file));
  write_new(options.file, bytes_of(starter(options)));
  print("wrote {}; edit it before the first run, which fixes it\n", options.file);
}

}  // namespace

void add_policy(Command& command) {
  auto options = std::make_shared<Options>();
  command.argument("FILE", options->file, "Policy to write (YAML)").required().writes_file();
  command.option("--corpus", "NAME", options->corpus, "Public name of the corpus and its ledger")
      .required();
  command.option("--class", "NAME", options->classes, "Class of contributions");
  command
      .option("--trust", "FILE", options->trusted,
              "Public key of 'keygen' that may attest contributions of every class")
      .reads_file();
  command.action([options] { run(*options); });
}

}  // namespace discreet::cli
