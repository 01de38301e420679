#include <fmt/core.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/command.h"
#include "cli/contributions.h"
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
  double delta = 1e-5;
  int threads = 0;
  bool json = false;
};

constexpr std::size_t kShown = 5;  // contributors, of those who gave most

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

// Whoever gave several contributions: those add.
void print_totals(const std::vector<ContributorTotal>& totals, double delta) {
  std::size_t several = 0, shown = 0;
  for (const ContributorTotal& t : totals) {
    if (t.contributions < 2 || ++several > kShown) continue;
    ++shown;
    print("contributor {}: {} contributions, together epsilon ≤ {} at delta {}{}\n", t.contributor,
          t.contributions, brief_up(epsilon_of(t, delta)), delta,
          t.amplified == 0 ? "" : fmt::format(" ({} amplified ones aside)", t.amplified));
  }
  if (several > shown) print("and {} more with several; --json has all\n", several - shown);
}

int run(const Options& options) {
  Circumstances at;
  at.time = options.at.empty() ? std::chrono::duration_cast<std::chrono::seconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count()
                               : parse_instant(options.at, "--at");
  at.statements = read_statements(options.statements);
  if (!options.withdrawn.empty())
    at.withdrawn = parse_hashes(read_input(options.withdrawn), options.withdrawn);
  const Policy policy = read_policy(read_input(options.policy), options.policy);
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
  const int threads = options.threads > 0
                          ? options.threads
                          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::vector<Verdict> verdicts = gate.admit(contributions, threads);
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
  if (options.json)
    print("{}\n", nlohmann::json{{"policy_hash", hash},
                                 {"admitted", admitted},
                                 {"refused", verdicts.size() - admitted},
                                 {"contributions", std::move(rows)},
                                 {"contributors", to_json(totals, options.delta)}}
                      .dump());
  if (!options.json) {
    print_totals(totals, options.delta);
    print("{} admitted, {} refused under policy {}\n", admitted, verdicts.size() - admitted, hash);
  }
  return admitted == verdicts.size() ? kDone : kCheckSaysNo;
}

}  // namespace

void add_admit(CLI::App& command, int& status) {
  auto options = std::make_shared<Options>();
  command.add_option("POLICY", options->policy, "Corpus policy (YAML)")->required();
  command.add_option("DESCRIPTORS", options->anchors, "Anchor file (JSON lines) of 'attest'")
      ->required();
  command.add_option("--at", options->at,
                     "Beginning of the epoch, as 2026-11-16T12:00:00Z; default: now");
  command.add_option("--statements", options->statements, "Rotations and revocations of 'keygen'");
  command.add_option("--withdrawn", options->withdrawn, "Descriptor hashes, one a line");
  command.add_option("--uses", options->uses,
                     "Store of uses; what it makes of the result is confidential");
  command.add_option("--delta", options->delta, "Delta of contributors' epsilon; default 1e-5")
      ->check(CLI::Range(1e-300, 0.999999));
  command.add_option("--threads", options->threads, "Default: all cores; same result")
      ->check(CLI::Range(1, 1024));
  command.add_flag("--json", options->json, "Print one JSON object");
  command.callback([options, &status] { status = run(*options); });
}

}  // namespace discreet::cli
