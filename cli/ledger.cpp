#include <fmt/chrono.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/contributions.h"
#include "cli/deletion_receipt.h"
#include "cli/print.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/json.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/ledger/proof.h"
#include "discreet/ledger/receipt.h"
#include "discreet/ledger/trace.h"
#include "discreet/ledger/verify.h"

namespace discreet::cli {
namespace {

using namespace ledger;
using nlohmann::json;

struct Options {
  std::string file, public_key, checkpoint, entry, from = "0", limit = "20", hash, receipts, key,
                                                   passphrase_file, consistency;
  bool no_attestations = false;
  bool json = false;
};

constexpr const char* kKeyForms =
    "File with the ledger's key: PEM, 64 hexadecimal digits, or name+id+base64";

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidInput, "ledger", sentence);
}

// Positions and sizes, exactly.
std::uint64_t whole(std::string_view option, const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    refuse(fmt::format("{} is '{}'; give a whole number, 0 or more", option, text));
  return value;
}

std::string read_note(const std::string& path) {
  std::string text = read_input(path);
  try {
    static_cast<void>(read_unverified(text));
  } catch (const Error& error) {
    refuse(fmt::format("'{}' is no signed note of a checkpoint: {}", path, error.sentence()));
  }
  return text;
}

// In several lines, in ASCII.
std::string indented(const json& value) { return value.dump(2, ' ', true) + "\n"; }

// "1 epoch", "2 epochs".
std::string many(std::uint64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::string epsilon(std::uint64_t micro) {
  return fmt::format("{:.6f}", static_cast<double>(micro) / kMicro);
}

// A leaf as JSON, with its position and, of uses, what they refer to.
json described(Store& store, std::uint64_t position, const Entry& entry) {
  json out = read_json(to_json(describe(entry)));
  out["entry"] = position;
  if (const auto* use = std::get_if<Use>(&entry))
    out["under"] = read_json(to_json(describe(decode_entry(leaf_at(store, use->terms)))));
  return out;
}

// ---------------------------------------------------------------- verify

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

void print_verdict(const Verification& found, const Options& options) {
  if (!found.ok) {
    print("BROKEN ({})", found.kind);
    if (found.entry) print(" at entry {}", *found.entry);
    print(": {}\n", found.problem);
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
  print("  signed         {} by {}{}\n", many(c.notes, "checkpoint"), to_hex(found.header->key),
        options.public_key.empty() ? ", the key the header declares: compare it" : "");
  print("  past           {}\n",
        options.checkpoint.empty()
            ? "not compared: give a note you kept as --checkpoint to see rollback and forks"
            : "extends the checkpoint given");
  print("  holds          {}, {} in {}, {}, {}, {}\n", many(c.admissions, "contribution"),
        many(c.uses, "use"), many(c.epochs, "epoch"), many(c.withdrawals, "withdrawal"),
        many(c.refusals, "refusal"), many(c.releases, "release"));
  if (c.deletions != 0) print("  deletions      {}\n", many(c.deletions, "receipt"));
  print("  attestations   {} verified{}\n", found.attestations,
        options.no_attestations ? " (not asked for)" : "");
  for (const ClassTotal& t : found.classes)
    print("  {:<14} {}, epsilon ≤ {} at delta = {}, {}, by {}\n", t.admissibility_class,
          many(t.contributions, "contribution"), epsilon(t.most_spent),
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
          t.admissibility_class, many(t.contributions, "contribution"), many(t.uses, "use"),
          epsilon(t.most_spent));
}

json explain(const Options& options, std::uint64_t position) {
  Store store(options.file, Store::Mode::kRead);
  const Bytes leaf = leaf_at(store, position);
  json out = described(store, position, decode_entry(leaf));
  out["leaf"] = to_hex(leaf);
  out["leaf_hash"] = to_hex(leaf_hash(leaf));
  return out;
}

int run_verify(const Options& options) {
  VerifyOptions how;
  how.attestations = !options.no_attestations;
  std::optional<std::uint64_t> position;
  if (!options.entry.empty()) position = whole("--explain", options.entry);
  if (!options.public_key.empty()) how.key = public_key_from_text(read_input(options.public_key));
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

// ---------------------------------------------------------------- show, prove, trace, export

// A field in the units and words of people: scaled integers as numbers, times as dates.
std::string for_people(std::string& name, const json& value) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"_nano", kNano}, {"_micro", kMicro}, {"_pico", kPico}, {"_atto", kAtto}};
  for (const auto& [suffix, unit] : kUnits)
    if (name.ends_with(suffix) && value.is_number()) {
      name.resize(name.size() - suffix.size());
      return fmt::format("{}", value.get<double>() / unit);
    }
  const bool is_time =
      name == "as_of" || name == "not_after" || name == "time" || name == "horizon";
  if (is_time && value.is_number() && value.get<std::uint64_t>() < 253'402'300'800)
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(value.get<std::time_t>()));
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void run_show(const Options& options) {
  Store store(options.file, Store::Mode::kRead);
  const std::uint64_t from = whole("--from", options.from);
  std::uint64_t left = whole("--limit", options.limit), next = from;
  Store::Leaves leaves(store, from);
  Store::Leaf leaf;
  for (; left > 0 && leaves.next(leaf); --left) {
    next = leaf.position + 1;
    const json row = leaf.summarised ? json{{"entry", leaf.position},
                                            {"type", "summarised"},
                                            {"leaf_hash", to_hex(leaf.hash)}}
                                     : described(store, leaf.position, decode_entry(leaf.content));
    if (options.json) {
      print("{}\n", row.dump());
      continue;
    }
    print("{:>8}  {}", leaf.position, row["type"].get<std::string>());
    for (const auto& [key, value] : row.items()) {
      const bool says_nothing =
          (value.is_string() && value.get_ref<const std::string&>().empty()) ||
          (value == 0 && key != "contribution" && key != "epoch" && key != "terms");
      if (says_nothing || key == "type" || key == "entry" || key == "under" || key == "signature" ||
          key == "policy")
        continue;
      std::string name = key;
      const std::string text = for_people(name, value);
      print("  {}={}", name, text);
    }
    print("\n");
  }
  if (options.json) return;
  if (next == from && left > 0)
    print("there is no entry from {} on\n", from);
  else if (left == 0 && leaves.next(leaf))
    print("there are more; go on with --from {}\n", next);
}

void run_prove(const Options& options) {
  if (options.entry.empty() == options.consistency.empty())
    refuse("give either an ENTRY, to prove that it is in the ledger, or --consistency SIZE");
  const std::string proof =
      options.entry.empty()
          ? prove_consistency(options.file, whole("--consistency", options.consistency))
          : prove_entry(options.file, whole("ENTRY", options.entry));
  print_lines(options.json ? proof + "\n" : indented(read_json(proof)));
}

int run_check(const Options& options) {
  std::optional<std::string> earlier;
  if (!options.checkpoint.empty()) earlier = read_note(options.checkpoint);
  const std::string text = read_input(options.file);
  const admission::PublicKey key = public_key_from_text(read_input(options.public_key));
  ProofVerdict found = verify_proof(text, key, earlier);
  if (found.ok) found.problem = receipt_contradiction(read_json(text), found, key);
  found.ok = found.problem.empty();
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

void run_trace(const Options& options) {
  const Digest descriptor = descriptor_hash(options.hash);
  Store store(options.file, Store::Mode::kRead);
  store.begin_snapshot();
  const Trace found = trace(store, descriptor);
  if (options.json) {
    json uses = json::array(), releases = json::array();
    for (const auto& use : found.uses)
      uses.push_back({{"entry", use.position},
                      {"run", use.terms.run},
                      {"epoch", use.terms.epoch},
                      {"cumulative_epsilon", static_cast<double>(use.use.spend) / kMicro}});
    for (const auto& release : found.releases)
      releases.push_back({{"entry", release.position},
                          {"run", release.entry.run},
                          {"manifest_hash", to_hex(release.entry.manifest)}});
    json out = {{"descriptor_hash", options.hash},
                {"admission", nullptr},
                {"withdrawal", nullptr},
                {"uses", uses},
                {"releases", releases},
                {"epsilon", static_cast<double>(found.spend) / kMicro}};
    if (found.admission)
      out["admission"] = described(store, found.admission->position, found.admission->entry);
    if (found.withdrawal)
      out["withdrawal"] = described(store, found.withdrawal->position, found.withdrawal->entry);
    print("{}\n", out.dump());
    return;
  }
  if (!found.admission) {
    print("not in this ledger, or summarised since{}\n", found.withdrawal ? "; withdrawn" : "");
    return;
  }
  const Admission& a = found.admission->entry;
  print("contribution {} of class {}, entry {}\n", a.number, a.admissibility_class,
        found.admission->position);
  for (const auto& use : found.uses)
    print("  used           run {}, epoch {}, {} steps{}: epsilon ≤ {} {} (entry {})\n",
          use.terms.run, use.terms.epoch, use.terms.steps,
          found.has_plans ? fmt::format(" of {} planned", use.terms.planned_steps) : "",
          epsilon(use.use.spend), found.has_plans ? "with the plan" : "so far", use.position);
  if (found.withdrawal) {
    print("  withdrawn      entry {}, \"{}\"; models already trained are not changed by it\n",
          found.withdrawal->position, found.withdrawal->entry.reason);
    print(
        "  stated         epsilon ≤ {}: what {} would have cost, since the time of a withdrawal "
        "may depend on what was released\n",
        epsilon(found.spend),
        found.has_plans ? "all that its runs planned" : "all uses that it allowed");
  }
  for (const auto& release : found.releases)
    print("  released       run {}, manifest {} (entry {})\n", release.entry.run,
          to_hex(release.entry.manifest), release.position);
}

void run_export(const Options& options) {
  const admission::SigningKey key = read_key(options.key, options.passphrase_file);
  Store store(options.file, Store::Mode::kRead);
  store.begin_snapshot();
  const auto note = store.last_note();
  if (!note || !open_note(note->text, {read_unverified(note->text).origin, key.public_key()}))
    refuse("the ledger is not signed by this key");
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

void add_ledger(CLI::App& command, int& status) {
  auto options = std::make_shared<Options>();
  command.require_subcommand(1);
  const auto add = [&](const char* name, const char* summary, const char* example) {
    CLI::App* sub = command.add_subcommand(name, summary);
    sub->footer(fmt::format("Example:\n  {}", example));
    sub->add_option("LEDGER", options->file, "The ledger's file")->required();
    sub->add_flag("--json", options->json, "Print JSON");
    return sub;
  };
  CLI::App* verify =
      add("verify", "Whether the file is what was signed and keeps every rule.",
          "discreet ledger verify ledger.db --public-key ledger.pub --checkpoint RUN/ledger.note");
  verify->add_option("--public-key", options->public_key, kKeyForms);
  verify->add_option("--checkpoint", options->checkpoint,
                     "A signed note from an earlier day: shows rollback and forks");
  verify->add_option("--explain", options->entry, "Also show this entry, and what it refers to");
  verify->add_flag("--no-attestations", options->no_attestations,
                   "Skip the contributors' signatures");
  verify->callback([options, &status] { status = run_verify(*options); });

  CLI::App* show =
      add("show", "Entries, as the file says them: `verify` says whether to believe it.",
          "discreet ledger show ledger.db --from 100 --limit 5 --json");
  show->add_option("--from", options->from, "First entry")->capture_default_str();
  show->add_option("--limit", options->limit, "Most entries to show")->capture_default_str();
  show->callback([options] { run_show(*options); });

  CLI::App* prove =
      add("prove", "Proof that an entry is in the ledger, or that it extends an earlier one.",
          "discreet ledger prove ledger.db 42 > proof.json\n"
          "  discreet ledger prove ledger.db --consistency 100 > consistency.json");
  prove->add_option("ENTRY", options->entry, "Position of the entry");
  prove->add_option("--consistency", options->consistency,
                    "Number of entries of the earlier checkpoint, its second line");
  prove->callback([options] { run_prove(*options); });

  CLI::App* check = command.add_subcommand(
      "check", "Whether a proof or receipt holds. Needs the ledger's key, not the ledger.");
  check->footer(
      "Example:\n  discreet ledger prove ledger.db 42 > proof.json\n"
      "  discreet ledger check proof.json --public-key ledger.pub\n"
      "  discreet ledger check consistency.json --public-key ledger.pub --checkpoint "
      "last-month.note");
  check->add_option("PROOF", options->file, "As `prove` prints it, or one line of `export`")
      ->required();
  check->add_option("--public-key", options->public_key, kKeyForms)->required();
  check->add_option("--checkpoint", options->checkpoint,
                    "The note that you kept: what a proof of consistency is about");
  check->add_flag("--json", options->json, "Print JSON");
  check->callback([options, &status] { status = run_check(*options); });

  CLI::App* trace = add(
      "trace",
      "Every run, epoch and release a contribution touched, and what it spent, as the file says "
      "it.",
      "discreet ledger trace ledger.db 3fa9… --json");
  trace->add_option("HASH", options->hash, "SHA-256 of its descriptor")->required();
  trace->callback([options] { run_trace(*options); });

  CLI::App* exporting =
      add("export", "A receipt (RFC 9942) for every entry, for whoever holds only that entry.",
          "discreet ledger export ledger.db --receipts receipts.jsonl --key ledger.key");
  exporting
      ->add_option("--receipts", options->receipts, "JSON lines are put at the end of this file")
      ->required();
  exporting->add_option("--key", options->key, "The ledger's private key")->required();
  exporting->add_option("--passphrase-file", options->passphrase_file,
                        "Its first line opens the key");
  exporting->callback([options] { run_export(*options); });
}

}  // namespace discreet::cli
