#include <fmt/core.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands.h"
#include "cli/contributions.h"
#include "cli/input.h"
#include "cli/print.h"
#include "discreet/admission/descriptor.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/ledger/ledger.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/withdrawal.h"

namespace discreet::cli {
namespace {

using namespace ledger;
using nlohmann::json;

struct Options {
  std::vector<std::string> hashes, contributors;
  std::string descriptors, origin, reason, key, passphrase_file, events, file, bundles, verify,
      public_key;
  bool json = false;

  bool names_contributions() const { return !hashes.empty() || !contributors.empty(); }
};

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidInput, "withdraw", sentence);
}

// The contributions that are named: by hash, or as all of a contributor in an anchor file.
std::vector<Digest> named(const Options& options) {
  std::vector<Digest> out;
  for (const std::string& hash : options.hashes) out.push_back(descriptor_hash(hash));
  if (options.contributors.empty()) return out;
  if (options.descriptors.empty())
    refuse("--contributor needs --descriptors, the anchor file with the contributions");
  std::set<std::string> missing(options.contributors.begin(), options.contributors.end());
  const std::set<std::string> wanted = missing;
  for (const admission::Anchored& line : read_anchors(options.descriptors)) {
    const Bytes& bytes = line.contribution.descriptor;
    std::string contributor;
    try {
      contributor = admission::decode_descriptor(bytes).contributor;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kMalformed) throw;
      continue;  // the gate rejects it: it was never used
    }
    if (!wanted.contains(contributor)) continue;
    missing.erase(contributor);
    out.push_back(admission::hash_of(bytes));
  }
  if (!missing.empty())
    refuse(fmt::format("{} has no contribution of '{}'; check the spelling", options.descriptors,
                       *missing.begin()));
  return out;
}

std::vector<Withdrawal> signed_withdrawals(const Options& options, const std::string& origin) {
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const auto key = read_key(options.key, options.passphrase_file);
  std::vector<Withdrawal> out;
  for (const Digest& descriptor : named(options))
    out.push_back(
        sign_withdrawal(key, origin, descriptor, options.reason, static_cast<std::uint64_t>(now)));
  return out;
}

void append_events(const Options& options, const std::vector<Withdrawal>& withdrawals) {
  std::string lines;
  for (const Withdrawal& each : withdrawals) lines += write_deletion_event(each);
  append_lines(options.events, lines);
}

// The contributor's or steward's part.
void sign(const Options& options) {
  if (options.origin.empty() || options.key.empty() || options.events.empty())
    refuse(
        "to sign a withdrawal give HASH or --contributor, --origin, --key and --events, the file "
        "to add to; a steward gives --ledger instead of --origin and --events, and records it too");
  const std::vector<Withdrawal> all = signed_withdrawals(options, options.origin);
  append_events(options, all);
  json hashes = json::array();
  for (const Withdrawal& each : all) hashes.push_back(to_hex(each.descriptor));
  if (options.json)
    print("{}\n",
          json{{"signed", hashes.size() == 1 ? hashes[0] : hashes}, {"events", options.events}}
              .dump());
  else if (all.size() == 1)
    print("withdrawal of {} signed into {}\n", hashes[0].get<std::string>(), options.events);
  else
    print("withdrawals of {} contributions signed into {}\n", all.size(), options.events);
}

// The ledger's part.
ExitStatus consume(const Options& options) {
  if (options.key.empty() || (options.events.empty() && !options.names_contributions()))
    refuse(
        "to record withdrawals give --ledger, --key (the ledger's) and --events, or the "
        "contributions that the ledger's steward withdraws: HASH or --contributor");
  if (!options.bundles.empty() && !std::filesystem::is_directory(options.bundles))
    refuse(fmt::format("--bundles is '{}', which is not a folder", options.bundles));
  std::vector<Withdrawal> asked, events;
  if (!options.names_contributions()) asked = read_deletion_events(read_input(options.events));
  std::vector<std::string> rejected;
  std::size_t fresh = 0;
  std::string note;
  {
    Ledger ledger = Ledger::open(options.file, read_key(options.key, options.passphrase_file));
    if (options.names_contributions()) {
      asked = signed_withdrawals(options, ledger.state().header().origin);
      if (!options.events.empty()) append_events(options, asked);
    }
    // Events come from many people: a forged one must not keep the others out.
    for (Withdrawal& event : asked) {
      if (auto why_not = ledger.objection(event))
        rejected.push_back(*std::move(why_not));
      else
        events.push_back(std::move(event));
    }
    fresh = ledger.withdraw(events);
    note = ledger.note();
  }
  json bundles = json::array(), without = json::array();
  if (!options.bundles.empty()) {
    const auto key = read_key(options.key, options.passphrase_file);
    for (const Withdrawal& event : events) {
      const std::string path =
          (std::filesystem::path(options.bundles) / (to_hex(event.descriptor) + ".json")).string();
      try {
        write_atomically(path, bytes_of(withdrawal_bundle(options.file, key, event.descriptor)));
        bundles.push_back(path);
      } catch (const Error& error) {
        // What was never admitted, or was summarised, is withdrawn all the same.
        if (error.code() != ErrorCode::kInvalidInput) throw;
        without.push_back(
            {{"descriptor_hash", to_hex(event.descriptor)}, {"reason", error.sentence()}});
      }
    }
  }
  if (options.json)
    print("{}\n", json{{"events", events.size()},
                       {"recorded", fresh},
                       {"already_recorded", events.size() - fresh},
                       {"bundles", bundles},
                       {"without_bundle", without},
                       {"rejected", rejected},
                       {"note", note}}
                      .dump());
  else if (events.empty() && !rejected.empty())
    print("none of {} withdrawals recorded: all are rejected\n", rejected.size());
  else
    print(
        "{} of {} withdrawals recorded, {} were there; later epochs leave them out, models "
        "already trained are not changed\n",
        fresh, events.size(), events.size() - fresh);
  const ExitStatus status = rejected.empty() ? kDone : kCheckSaysNo;
  if (options.json) return status;
  for (const std::string& why_not : rejected) print("  rejected       {}\n", why_not);
  for (const json& path : bundles) print("  bundle         {}\n", path.get<std::string>());
  for (const json& each : without)
    print("  no bundle      {}: {}\n", each["descriptor_hash"].get<std::string>(),
          each["reason"].get<std::string>());
  return status;
}

ExitStatus check(const Options& options) {
  std::optional<LedgerKey> key;
  if (!options.public_key.empty()) key = ledger_key_from_text(read_input(options.public_key));
  const BundleVerdict found = verify_bundle(read_input(options.verify), key);
  const double epsilon = static_cast<double>(found.spend) / kMicro;
  if (options.json) {
    json out = {{"verified", found.ok}, {"key_given", key.has_value()}};
    json affected = json::array();
    for (const Release& r : found.affected)
      affected.push_back({{"run", r.run}, {"manifest_hash", to_hex(r.manifest)}});
    if (found.ok)
      out.update({{"origin", found.origin},
                  {"public_key", found.public_key},
                  {"descriptor_hash", found.descriptor},
                  {"uses", found.uses},
                  {"releases", found.releases},
                  {"affected_releases", affected},
                  {"epsilon", epsilon}});
    else
      out["problem"] = found.problem;
    print("{}\n", out.dump());
  } else if (found.ok) {
    print(
        "VERIFIED withdrawal of {}\n  from           {}{}\n  used           in {} epochs "
        "before; epsilon ≤ {:.6f}, of all {}; {} releases are affected\n  note   "
        "        presence is "
        "proven; that nothing was left out takes the ledger\n",
        found.descriptor, found.origin,
        key ? "" : fmt::format(", by the bundle's own key {}: compare it", found.public_key),
        found.uses, epsilon, found.has_plans ? "that its runs planned" : "uses that it allowed",
        found.releases);
    for (const Release& r : found.affected)
      print("  release        run {}, manifest {}\n", r.run, to_hex(r.manifest));
  } else {
    print("BROKEN: {}\n", found.problem);
  }
  return found.ok ? kDone : kCheckSaysNo;
}

ExitStatus run(const Options& options) {
  const bool names = options.names_contributions();
  if (options.verify.empty() && options.file.empty() && !names)
    refuse(
        "give HASH or --contributor to sign a withdrawal, --ledger to record signed ones, or "
        "--verify a bundle");
  if (!options.verify.empty()) {
    if (names || !options.file.empty()) refuse("--verify checks a bundle alone; give nothing else");
    return check(options);
  }
  if (!options.file.empty()) return consume(options);
  sign(options);
  return kDone;
}

}  // namespace

void add_withdraw(Command& command) {
  auto options = std::make_shared<Options>();
  command.argument("HASH", options->hashes, "SHA-256 of a descriptor to withdraw");
  command.option("--contributor", "NAME", options->contributors,
                 "Withdraw all contributions of this contributor in --descriptors");
  command
      .option("--descriptors", "FILE", options->descriptors,
              "Anchor file (JSON lines) from 'attest', for --contributor")
      .reads_file();
  command.option("--origin", "NAME", options->origin,
                 "Name of the ledger: the first line of its notes");
  command.option("--reason", "TEXT", options->reason, "Public reason, at most 256 bytes");
  command
      .option("--key", "FILE", options->key,
              "Private key: the contributor's or steward's to sign, the ledger's to record")
      .reads_file();
  add_passphrase_option(command, options->passphrase_file);
  command
      .option("--events", "FILE", options->events,
              "Signed withdrawals (JSON lines): to append to when signing, to read when recording")
      .writes_file();
  command
      .option("--ledger", "FILE", options->file,
              "Record the events in this ledger; each counts once. With HASH or --contributor, its "
              "steward signs and records in one step")
      .reads_file();
  command
      .option("--bundles", "DIR", options->bundles,
              "Write one proof bundle per event to this folder")
      .writes_folder();
  command.option("--verify", "FILE", options->verify, "Verify a bundle; needs no ledger")
      .reads_file();
  command
      .option("--public-key", "FILE", options->public_key,
              "Public key you expect of the ledger, for --verify")
      .reads_file();
  command.json(options->json);
  command.action([options] { return run(*options); });
}

}  // namespace discreet::cli
