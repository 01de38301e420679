#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "cli/input.h"
#include "cli/ledger/ledger.h"
#include "cli/print.h"
#include "discreet/base/error.h"
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

void print_verdict(const ProofVerdict& found, bool as_json) {
  if (as_json) {
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
}

// One proof, or one receipt a line.
std::vector<std::string_view> proofs_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) lines.push_back(line);
    at = end + 1;
  }
  const bool are_objects = std::ranges::all_of(lines, [](std::string_view line) {
    return line.front() == '{' && line.substr(0, line.find_last_not_of(" \t\r") + 1).back() == '}';
  });
  if (lines.size() < 2 || !are_objects) return {text};
  return lines;
}

ExitStatus run_check(const Options& options) {
  std::optional<std::string> earlier;
  if (!options.checkpoint.empty()) earlier = read_note(options.checkpoint);
  const LedgerKey key = ledger_key_from_text(read_input(options.public_key));
  const std::string text = read_input(options.file);
  const std::vector<std::string_view> proofs = proofs_of(text);
  std::size_t broken = 0;
  for (std::size_t i = 0; i < proofs.size(); ++i) {
    ProofVerdict found;
    try {
      found = verify_proof(proofs[i], key, earlier);
    } catch (const Error& error) {
      if (proofs.size() == 1) throw;
      throw Error(error.code(), "ledger",
                  fmt::format("{}: proof {}: {}", options.file, i + 1, error.sentence()));
    }
    print_verdict(found, options.json);
    if (!found.ok) ++broken;
  }
  if (proofs.size() > 1 && !options.json)
    print("{} of {} proofs verified\n", proofs.size() - broken, proofs.size());
  return broken == 0 ? kDone : kCheckSaysNo;
}

}  // namespace

void add_ledger_check(Command& command) {
  auto options = std::make_shared<Options>();
  command
      .argument("PROOF", options->file,
                "What 'prove' printed, or receipts of 'export' or 'unlearn delete', one a line")
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
