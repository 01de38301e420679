#include <memory>

#include "cli/contributions.h"
#include "cli/ledger/ledger.h"
#include "cli/print.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/ledger/contribution_trace.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/receipt.h"

namespace discreet::cli {
namespace {

using namespace ledger;
using nlohmann::json;

struct Options {
  std::string file, receipts, key, passphrase_file;
  bool json = false;
};

void run_export(const Options& options) {
  const admission::SigningKey key = read_key(options.key, options.passphrase_file);
  Store store(options.file, Store::Mode::kRead);
  store.begin_snapshot();
  const auto note = store.last_note();
  if (!note || !open_note(note->text, {read_unverified(note->text).origin, key.public_key()}))
    throw Error(ErrorCode::kInvalidInput, "ledger",
                "this key did not sign the ledger; give the ledger's key");
  const Tree tree = tree_of(store);
  const RangeHash range = [&](auto begin, auto end) { return tree.range(begin, end); };
  if (tree.size() != note->size || tree.range(0, note->size) != read_unverified(note->text).root)
    throw Error(ErrorCode::kMalformed, "ledger",
                "the ledger does not verify; no receipt is given out");
  const std::string origin = read_unverified(note->text).origin;
  std::string lines;
  Store::Leaves leaves(store, 0);
  std::uint64_t count = 0;
  for (Store::Leaf leaf; leaves.next(leaf); ++count) {
    json line = {
        {"entry", leaf.position},
        {"receipt", to_hex(inclusion_receipt(key, origin, note->size, leaf.position,
                                             inclusion_proof(leaf.position, note->size, range),
                                             tree.range(0, note->size)))}};
    if (!leaf.summarised) line["leaf"] = to_hex(leaf.content);
    line["leaf_hash"] = to_hex(leaf.summarised ? leaf.hash : leaf_hash(leaf.content));
    lines += line.dump() + "\n";
  }
  append_lines(options.receipts, lines, Access::kOwner);
  if (options.json)
    print("{}\n",
          json{{"receipts", count}, {"out", options.receipts}, {"note", note->text}}.dump());
  else
    print("{} receipts into {}\n", count, options.receipts);
}

}  // namespace

void add_ledger_export(Command& command) {
  auto options = std::make_shared<Options>();
  add_ledger_argument(command, options->file);
  command.option("--receipts", "FILE", options->receipts, "Append the receipts to this file")
      .required()
      .writes_file();
  command.option("--key", "FILE", options->key, "Private key of the ledger")
      .required()
      .reads_file();
  add_passphrase_option(command, options->passphrase_file);
  command.json(options->json);
  command.action([options] { run_export(*options); });
}

}  // namespace discreet::cli
