#include <memory>
#include <optional>

#include "cli/input.h"
#include "cli/ledger/ledger.h"
#include "cli/print.h"
#include "discreet/base/json.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/proof.h"

namespace discreet::cli {
namespace {

using namespace ledger;
using nlohmann::json;

struct Options {
  std::string file, public_key, checkpoint;
  bool json = false;
};

ExitStatus run_check(const Options& options) {
  std::optional<std::string> earlier;
  if (!options.checkpoint.empty()) earlier = read_note(options.checkpoint);
  const ProofVerdict found = verify_proof(
      read_input(options.file), ledger_key_from_text(read_input(options.public_key)), earlier);
  if (options.json) {
    json out = {{"verified", found.ok}};
    if (!found.ok) out["problem"] = found.problem;
    if (found.ok) out["tree_size"] = found.size;
    if (found.ok && !found.origin.empty()) out["origin"] = found.origin;
    if (found.ok && found.entry) out["entry"] = *found.entry;
    if (found.ok && found.from_size) out["from_size"] = *found.from_size;
    if (found.ok && found.leaf)
      out["content"] = read_json(to_json(describe(decode_entry(*found.leaf))));
    print("{}\n", out.dump());
  } else if (!found.ok) {
    print("BROKEN: {}\n", found.problem);
  } else if (found.from_size) {
    print("VERIFIED the {} entries of {} extend the first {}\n", found.size, found.origin,
          *found.from_size);
  } else {
    print("VERIFIED entry {} of the {} of {}\n", *found.entry, found.size,
          found.origin.empty() ? "the ledger with this key" : found.origin);
    if (found.leaf)
      print_lines(indented(read_json(to_json(describe(decode_entry(*found.leaf))))));
    else
      print("  its content was summarised; the proof is of its hash\n");
  }
  return found.ok ? kDone : kCheckSaysNo;
}

}  // namespace

void add_ledger_check(Command& command) {
  auto options = std::make_shared<Options>();
  command.argument("PROOF", options->file, "What 'prove' printed, or one line of 'export'")
      .required()
      .reads_file();
  add_ledger_key_option(command, options->public_key).required();
  command
      .option("--checkpoint", "FILE", options->checkpoint,
              "Signed note that you kept, which a proof of consistency extends")
      .reads_file();
  command.json(options->json);
  command.action([options] { return run_check(*options); });
}

}  // namespace discreet::cli
