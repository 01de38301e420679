#include <memory>

#include "cli/ledger/ledger.h"
#include "cli/print.h"
#include "discreet/ledger/contribution_trace.h"
#include "discreet/ledger/verify.h"

namespace discreet::cli {
namespace {

using namespace ledger;
using nlohmann::json;

struct Options {
  std::string file, hash;
  bool json = false;
};

void print_broken(const Verification& found, bool as_json) {
  if (as_json)
    print("{}\n", json{{"verified", false},
                       {"kind", found.kind},
                       {"problem", found.problem},
                       {"entry", found.entry ? json(*found.entry) : json()}}
                      .dump());
  else
    print(
        "BROKEN ({}){}: {}\n  note           nothing is shown of a ledger that does not verify; "
        "see 'discreet ledger verify'\n",
        found.kind, found.entry ? fmt::format(" at entry {}", *found.entry) : "", found.problem);
}

void print_trace(const Options& options, Store& store, const Trace& found) {
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
          epsilon_text(use.use.spend), found.has_plans ? "with the plan" : "so far", use.position);
  if (found.withdrawal) {
    print("  withdrawn      entry {}, \"{}\"; models already trained are not changed by it\n",
          found.withdrawal->position, found.withdrawal->entry.reason);
    print(
        "  stated         epsilon ≤ {}: what {} would have cost, since the time of a withdrawal "
        "may depend on what was released\n",
        epsilon_text(found.spend),
        found.has_plans ? "all that its runs planned" : "all uses that it allowed");
  }
  for (const auto& release : found.releases)
    print("  released       run {}, manifest {} (entry {})\n", release.entry.run,
          to_hex(release.entry.manifest), release.position);
}

ExitStatus run_trace(const Options& options) {
  const Digest descriptor = descriptor_hash(options.hash);
  Store store(options.file, Store::Mode::kRead);
  store.begin_snapshot();
  // In the same snapshot: what is shown is what was verified.
  const Verification verified = verify(store);
  if (!verified.ok) {
    print_broken(verified, options.json);
    return kCheckSaysNo;
  }
  print_trace(options, store, trace(store, descriptor));
  return kDone;
}

}  // namespace

void add_ledger_trace(Command& command) {
  auto options = std::make_shared<Options>();
  add_ledger_argument(command, options->file);
  command.argument("HASH", options->hash, "SHA-256 of the contribution's descriptor").required();
  command.json(options->json);
  command.action([options] { return run_trace(*options); });
}

}  // namespace discreet::cli
