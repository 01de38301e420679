#include "discreet/ledger/verify.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "cli/input.h"
#include "cli/ledger/ledger.h"
#include "cli/print.h"
#include "discreet/base/error.h"
#include "discreet/ledger/contribution_trace.h"
#include "discreet/ledger/note.h"

namespace discreet::cli {
namespace {

using namespace ledger;
using nlohmann::json;

struct Options {
  std::string file, public_key, checkpoint, entry;
  bool no_attestations = false, json = false;
};

json totals(const std::vector<ClassTotal>& classes) {
  json out = json::array();
  for (const ClassTotal& c : classes)
    out.push_back({{"class", c.admissibility_class},
                   {"contributions", c.contributions},
                   {"uses", c.uses},
                   {"most_spent", static_cast<double>(c.most_spent) / kMicro}});
  return out;
}

void print_json(const Verification& found, const Options& options, const json& explained) {
  json out = {{"verified", found.ok},
              {"entries", found.size},
              {"key_given", !options.public_key.empty()},
              {"checkpoint_given", !options.checkpoint.empty()},
              {"attestations_verified", found.attestations}};
  if (found.ok) {
    out["root"] = to_hex(found.root);
    out["note"] = found.note;
    out["counts"] = {
        {"admissions", found.counts.admissions}, {"uses", found.counts.uses},
        {"epochs", found.counts.epochs},         {"withdrawals", found.counts.withdrawals},
        {"refusals", found.counts.refusals},     {"releases", found.counts.releases},
        {"deletions", found.counts.deletions},   {"checkpoints", found.counts.notes},
        {"summarised", found.counts.summarised}};
    out["classes"] = totals(found.classes);
    out["summarised_classes"] = totals(found.summarised);
  } else {
    out["kind"] = found.kind;
    out["problem"] = found.problem;
    out["entry"] = found.entry ? json(*found.entry) : json();
  }
  if (found.header) {
    out["origin"] = found.header->origin;
    out["accountant"] = found.header->accountant;
    out["delta"] = static_cast<double>(found.header->delta) / kAtto;
    out["adjacency"] = accounting::to_string(found.header->adjacency);
    out["schema"] = found.header->schema;
    out["public_key"] = to_hex(found.header->key);
  }
  if (!explained.is_null()) out["explained"] = explained;
  print("{}\n", out.dump());
}

bool is_database(const std::string& path) {
  std::string head(15, '\0');
  std::ifstream(path, std::ios::binary)
      .read(head.data(), static_cast<std::streamsize>(head.size()));
  return head == "SQLite format 3";
}

void print_verdict(const Verification& found, const Options& options) {
  if (!found.ok) {
    print("BROKEN ({})", found.kind);
    if (found.entry) print(" at entry {}", *found.entry);
    print(": {}\n", found.problem);
    if (!is_database(options.file))
      print(
          "  note           a ledger is a database such as ledger.db; for receipts and proofs use "
          "'discreet ledger check'\n");
    std::error_code none;
    if (std::filesystem::exists(options.file + "-journal", none))
      print(
          "  note           a {}-journal lies next to it and was not read; if a writer was killed, "
          "the owner repairs the ledger by opening it for writing\n",
          std::filesystem::path(options.file).filename().string());
    return;
  }
  const State::Counts& c = found.counts;
  print("VERIFIED {} entries of {}\n", found.size, found.header->origin);
  print("  signed         {} by {}{}\n", counted(c.notes, "checkpoint"), to_hex(found.header->key),
        options.public_key.empty() ? ", the key the header declares: compare it" : "");
  print("  past           {}\n",
        options.checkpoint.empty()
            ? "not compared: give a note you kept as --checkpoint to see rollback and forks"
            : "extends the checkpoint given");
  print("  holds          {}, {} in {}, {}, {}, {}\n", counted(c.admissions, "contribution"),
        counted(c.uses, "use"), counted(c.epochs, "epoch"), counted(c.withdrawals, "withdrawal"),
        counted(c.refusals, "refusal"), counted(c.releases, "release"));
  if (c.deletions != 0) print("  deletions      {}\n", counted(c.deletions, "receipt"));
  print("  attestations   {} verified{}\n", found.attestations,
        options.no_attestations ? " (not asked for)" : "");
  for (const ClassTotal& t : found.classes)
    print("  {:<14} {}, epsilon ≤ {} at delta = {}, {}, by {}\n", t.admissibility_class,
          counted(t.contributions, "contribution"), epsilon_text(t.most_spent),
          static_cast<double>(found.header->delta) / kAtto,
          accounting::to_string(found.header->adjacency), found.header->accountant);
  if (!found.classes.empty())
    print("  provided that  {}\n",
          found.header->schema >= 2
              ? "the number of runs was fixed; each counts with all steps that it planned"
              : "every run ended as it was planned, and their number was fixed (schema 1: plans "
                "are not recorded)");
  for (const ClassTotal& t : found.summarised)
    print("  {:<14} summarised: {}, {}, epsilon ≤ {} as recorded; can no longer be recomputed\n",
          t.admissibility_class, counted(t.contributions, "contribution"), counted(t.uses, "use"),
          epsilon_text(t.most_spent));
}

json explain(const Options& options, std::uint64_t position) {
  Store store(options.file, Store::Mode::kRead);
  const Bytes leaf = leaf_at(store, position);
  json out = described(store, position, decode_entry(leaf));
  out["leaf"] = to_hex(leaf);
  out["leaf_hash"] = to_hex(leaf_hash(leaf));
  return out;
}

ExitStatus run_verify(const Options& options) {
  VerifyOptions how;
  how.attestations = !options.no_attestations;
  std::optional<std::uint64_t> position;
  if (!options.entry.empty()) position = parse_position("--explain", options.entry);
  if (!options.public_key.empty()) how.key = ledger_key_from_text(read_input(options.public_key));
  if (!options.checkpoint.empty()) how.checkpoint = read_note(options.checkpoint);
  if (isatty(STDERR_FILENO) != 0)
    how.progress = [](std::uint64_t n) { print(stderr, "\r{} entries", n); };
  const Verification found = verify(options.file, how);
  if (how.progress) print(stderr, "\r");
  // Before anything is printed, so that an entry that is not there is the only answer. What is
  // broken may still be readable.
  json explained;
  if (position) {
    try {
      explained = explain(options, *position);
    } catch (const Error&) {
      if (found.ok) throw;
    }
  }
  if (options.json) {
    print_json(found, options, explained);
  } else {
    print_verdict(found, options);
    if (!explained.is_null()) print_lines(indented(explained));
  }
  return found.ok ? kDone : kCheckSaysNo;
}

}  // namespace

void add_ledger_verify(Command& command) {
  auto options = std::make_shared<Options>();
  add_ledger_argument(command, options->file);
  add_ledger_key_option(command, options->public_key);
  command
      .option("--checkpoint", "FILE", options->checkpoint,
              "Signed note that you kept: shows rollback and forks")
      .reads_file();
  command.option("--explain", "ENTRY", options->entry,
                 "Show this entry too, with the entries it refers to");
  command.flag("--no-attestations", options->no_attestations, "Skip the contributors' signatures");
  command.json(options->json);
  command.action([options] { return run_verify(*options); });
}

}  // namespace discreet::cli
