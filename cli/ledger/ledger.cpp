#include "cli/ledger/ledger.h"

#include <charconv>

#include "cli/commands.h"
#include "cli/input.h"
#include "discreet/base/error.h"
#include "discreet/base/json.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/ledger/contribution_trace.h"
#include "discreet/ledger/note.h"

namespace discreet::cli {

using namespace ledger;
using nlohmann::json;

void add_ledger_argument(Command& command, std::string& file) {
  command.argument("LEDGER", file, "File of the ledger").required().reads_file();
}

Option& add_ledger_key_option(Command& command, std::string& file) {
  return command
      .option("--public-key", "FILE", file,
              "Public key of the ledger: PEM, 64 hexadecimal digits, or name+id+base64")
      .reads_file();
}

std::uint64_t parse_position(std::string_view option, const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(ErrorCode::kInvalidInput, "ledger",
                fmt::format("{} must be a whole number, 0 or more; found '{}'", option, text));
  return value;
}

std::string read_note(const std::string& path) {
  std::string text = read_input(path);
  try {
    static_cast<void>(read_unverified(text));
  } catch (const Error& error) {
    throw Error(
        ErrorCode::kInvalidInput, "ledger",
        fmt::format(
            "'{}' is not a signed note of a checkpoint: {}; give a file such as ledger.note", path,
            error.sentence()));
  }
  return text;
}

std::string indented(const json& value) { return value.dump(2, ' ', true) + "\n"; }

std::string counted(std::uint64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::string epsilon_text(std::uint64_t micro) {
  return fmt::format("{:.6f}", static_cast<double>(micro) / kMicro);
}

json described(Store& store, std::uint64_t position, const Entry& entry) {
  json out = read_json(to_json(describe(entry)));
  out["entry"] = position;
  if (const auto* use = std::get_if<Use>(&entry))
    out["under"] = read_json(to_json(describe(decode_entry(leaf_at(store, use->terms)))));
  return out;
}

void add_ledger(Command& command) {
  add_ledger_verify(command.subcommand(
      "verify", "Verify that the file is what was signed and follows every rule.",
      "discreet ledger verify ledger.db --public-key ledger.pub --checkpoint RUN/ledger.note"));
  add_ledger_show(command.subcommand("show",
                                     "Show entries as the file states them; 'verify' checks them.",
                                     "discreet ledger show ledger.db --from 100 --limit 5 --json"));
  add_ledger_prove(command.subcommand(
      "prove", "Prove that an entry is in the ledger, or that the ledger extends an earlier one.",
      "discreet ledger prove ledger.db 42 > proof.json\n"
      "  discreet ledger prove ledger.db --consistency 100 > consistency.json"));
  add_ledger_check(command.subcommand(
      "check", "Check a proof or receipt with the ledger's key, without the ledger.",
      "discreet ledger check proof.json --public-key ledger.pub\n"
      "  discreet ledger check consistency.json --public-key ledger.pub \\\n"
      "    --checkpoint last-month.note"));
  add_ledger_trace(command.subcommand(
      "trace", "List every run, epoch and release of a contribution, and what it spent.",
      "discreet ledger trace ledger.db HASH --json"));
  add_ledger_export(command.subcommand(
      "export", "Write a receipt (RFC 9942) for every entry, for holders of that entry alone.",
      "discreet ledger export ledger.db --receipts receipts.jsonl --key ledger.key"));
  add_ledger_summarise(command.subcommand(
      "summarise", "Replace contributions that ended before the retention horizon by totals.",
      "discreet ledger summarise ledger.db --key ledger.key"));
}

}  // namespace discreet::cli
