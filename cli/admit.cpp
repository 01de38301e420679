#include <fmt/core.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "cli/commands.h"
#include "cli/contributions.h"
#include "cli/input.h"
#include "cli/numbers.h"
#include "cli/print.h"
#include "discreet/accounting/tradeoff/gdp.h"
#include "discreet/admission/contributors.h"
#include "discreet/admission/uses.h"
#include "discreet/base/error.h"

namespace discreet::cli {
namespace {

using namespace admission;

struct Options {
  std::string policy, anchors, at, statements, withdrawn, uses;
  std::string delta = "1e-5", threads;
  bool json = false;
};

constexpr std::size_t kShown = 5;  // contributors, those with the largest totals

double epsilon_of(const ContributorTotal& total, double delta) {
  return accounting::gaussian_epsilon(total.gdp_mu, delta).upper;
}

nlohmann::json to_json(const std::vector<ContributorTotal>& totals, double delta) {
  auto out = nlohmann::json::array();
  for (const ContributorTotal& t : totals)
    out.push_back({{"contributor", t.contributor},
                   {"contributions", t.contributions},
                   {"amplified", t.amplified},
                   {"gdp_mu", t.gdp_mu},
                   {"epsilon_upper", epsilon_of(t, delta)},
                   {"delta", delta}});
  return out;
}

// A statement that changes no verdict under this policy, and why. A user who relies on a revocation
// must hear that it does not count.
struct Idle {
  std::string statement, reason;
};

std::vector<Idle> idle_statements(const Policy& policy, const Statements& statements,
                                  Instant time) {
  std::vector<Idle> idle;
  std::set<KeyId> revoked(policy.revoked.begin(), policy.revoked.end()), trusted;
  for (const Revocation& r : statements.revocations) {
    const bool by_authority = policy.authority && r.signer == *policy.authority;
    for (const KeyId& id : r.keys) {
      if (by_authority || id == r.signer.id())
        revoked.insert(id);
      else
        idle.push_back(
            {fmt::format("revocation of {} by {}", to_hex(id), to_hex(r.signer.id())),
             "its signer is neither that key nor the policy's authority; let one of them sign it"});
    }
  }
  for (const TrustedKey& key : policy.keys) trusted.insert(key.key.id());
  const auto why_not = [&](const Rotation& r) -> const char* {
    if (revoked.contains(r.from.id())) return "the old key is revoked";
    if (r.time > time) return "it is dated after the beginning of the epoch";
    if (!trusted.contains(r.from.id())) return "the policy does not trust the old key";
    return nullptr;
  };
  for (bool changed = true; changed;) {  // a chain may come in any order
    changed = false;
    for (const Rotation& r : statements.rotations)
      if (why_not(r) == nullptr) changed |= trusted.insert(r.to.id()).second;
  }
  for (const Rotation& r : statements.rotations)
    if (const char* reason = why_not(r))
      idle.push_back(
          {fmt::format("rotation from {} to {}", to_hex(r.from.id()), to_hex(r.to.id())), reason});
  return idle;
}

// Contributors of several contributions: their bounds add up. The family of the noise is the
// configuration's, not the policy's, so it is named.
void print_totals(const std::vector<ContributorTotal>& totals, double delta) {
  std::size_t several = 0, shown = 0;
  for (const ContributorTotal& t : totals) {
    if (t.contributions < 2 || ++several > kShown) continue;
    ++shown;
    print(
        "contributor {}: {} contributions, together epsilon ≤ {} at delta {} under Gaussian or "
        "Laplace noise{}\n",
        t.contributor, t.contributions, brief_up(epsilon_of(t, delta)), delta,
        t.amplified == 0 ? "" : fmt::format(" ({} amplified ones aside)", t.amplified));
  }
  if (several > shown) print("and {} more with several; --json has all\n", several - shown);
}

ExitStatus run(const Options& options) {
  const double delta = parse_delta("--delta", options.delta);
  Circumstances at;
  at.time = options.at.empty() ? std::chrono::duration_cast<std::chrono::seconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count()
                               : parse_instant(options.at, "--at");
  at.statements = read_statements(options.statements);
  if (!options.withdrawn.empty())
    at.withdrawn = parse_hashes(read_input(options.withdrawn), options.withdrawn);
  const Policy policy = read_policy(read_input(options.policy), options.policy);
  const std::vector<Idle> idle = idle_statements(policy, at.statements, at.time);
  if (!options.uses.empty()) {
    const auto store = std::make_shared<UseStore>(options.uses);
    at.exhausted = [store, policy](const Digest& hash, const Descriptor& d) {
      const auto& amplified = policy.classes.at(d.data_class).amplified;
      return store->used(hash) >= (amplified ? amplified->steps : d.occurrences);
    };
  }
  const std::vector<Anchored> anchors = read_anchors(options.anchors);
  std::vector<Contribution> contributions;
  contributions.reserve(anchors.size());
  for (const Anchored& a : anchors) contributions.push_back(a.contribution);
  Gate gate(policy, std::move(at));
  const std::vector<Verdict> verdicts = gate.admit(contributions, parse_threads(options.threads));
  std::size_t admitted = 0;
  std::vector<Descriptor> descriptors;
  auto rows = nlohmann::json::array();
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const Verdict& v = verdicts[i];
    admitted += v.admitted() ? 1 : 0;
    if (v.admitted()) descriptors.push_back(*v.descriptor);
    const std::string code(v.admitted() ? "ADMITTED" : to_string(*v.refusal));
    if (options.json) {
      nlohmann::json row = {{"line", anchors[i].line},
                            {"descriptor_hash", to_hex(v.hash)},
                            {"admitted", v.admitted()}};
      if (!v.admitted()) row.update({{"refusal", code}, {"reason", v.reason}});
      if (v.descriptor)
        row.update(
            {{"contributor", v.descriptor->contributor}, {"class", v.descriptor->data_class}});
      rows.push_back(std::move(row));
    } else {
      print("{:>6}  {:<16}  {}  {}\n", anchors[i].line, code, to_hex(v.hash).substr(0, 16),
            v.admitted() ? v.descriptor->contributor + ", " + v.descriptor->data_class : v.reason);
    }
  }
  const std::string hash = to_hex(hash_of(policy));
  const auto totals = contributor_totals(descriptors);
  auto without_effect = nlohmann::json::array();
  for (const Idle& each : idle)
    without_effect.push_back({{"statement", each.statement}, {"reason", each.reason}});
  if (options.json)
    print("{}\n", nlohmann::json{{"policy_hash", hash},
                                 {"admitted", admitted},
                                 {"refused", verdicts.size() - admitted},
                                 {"contributions", std::move(rows)},
                                 {"contributors", to_json(totals, delta)},
                                 {"statements_without_effect", without_effect}}
                      .dump());
  if (!options.json) {
    print_totals(totals, delta);
    for (const Idle& each : idle)
      print("note: the {} has no effect: {}\n", each.statement, each.reason);
    print("{} admitted, {} rejected under policy {}\n", admitted, verdicts.size() - admitted, hash);
  }
  return admitted == verdicts.size() ? kDone : kCheckSaysNo;
}

}  // namespace

void add_admit(Command& command) {
  auto options = std::make_shared<Options>();
  command.argument("POLICY", options->policy, "Corpus policy (YAML)").required().reads_file();
  command.argument("DESCRIPTORS", options->anchors, "Anchor file (JSON lines) from 'attest'")
      .required()
      .reads_file();
  command.option("--at", "TIME", options->at,
                 "Start of the epoch, such as 2026-11-16T12:00:00Z; now if not given");
  command
      .option("--statements", "FILE", options->statements,
              "Rotations and revocations from 'keygen'")
      .reads_file();
  command
      .option("--withdrawn", "FILE", options->withdrawn,
              "Descriptor hashes of withdrawn contributions, one per line")
      .reads_file();
  command
      .option("--uses", "FILE", options->uses, "Store of uses; with it the result is confidential")
      .writes_file();
  command.option("--delta", "DELTA", options->delta, "Delta of each contributor's epsilon");
  command.option("--threads", "N", options->threads,
                 "Threads, which do not change the result; one per processor if not given");
  command.json(options->json);
  command.action([options] { return run(*options); });
}

}  // namespace discreet::cli
