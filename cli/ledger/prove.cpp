#include <memory>

#include "cli/ledger/ledger.h"
#include "cli/print.h"
#include "discreet/base/error.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/ledger/proof.h"

namespace discreet::cli {
namespace {

using namespace ledger;
using nlohmann::json;

struct Options {
  std::string file, entry, consistency;
  bool json = false;
};

void run_prove(const Options& options) {
  if (options.entry.empty() == options.consistency.empty())
    throw Error(ErrorCode::kInvalidInput, "ledger",
                "give either an ENTRY, to prove that it is in the ledger, or --consistency SIZE");
  const std::string proof =
      options.entry.empty()
          ? prove_consistency(options.file, parse_position("--consistency", options.consistency))
          : prove_entry(options.file, parse_position("ENTRY", options.entry));
  if (options.json)
    print("{}\n", proof);
  else
    print_lines(indented(read_json(proof)));
}

}  // namespace

void add_ledger_prove(Command& command) {
  auto options = std::make_shared<Options>();
  add_ledger_argument(command, options->file);
  command.argument("ENTRY", options->entry, "Position of the entry").excludes({"--consistency"});
  command.option("--consistency", "SIZE", options->consistency,
                 "Number of entries of the earlier checkpoint: the second line of its note");
  command.json(options->json);
  command.action([options] { run_prove(*options); });
}

}  // namespace discreet::cli
