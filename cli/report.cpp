#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/print.h"
#include "discreet/base/text/rounded_text.h"
#include "discreet/report/html.h"

namespace discreet::cli {
namespace {

struct Options {
  std::string run, out, ledger, secret;
  bool is_public = false, json = false;
};

// Without --public also what is confidential, as on the page.
void print_json(const report::RunSummary& summary, const std::string& out, bool is_public) {
  const report::Declared& declared = summary.declared;
  const report::Claim& claim = declared.claim;
  nlohmann::json object = {
      {"report", out},
      {"public", is_public},
      {"ended", report::to_string(declared.ended)},
      {"epsilon", {{"lower", nullptr}, {"upper", claim.upper}}},
      {"delta", claim.delta},
      {"adjacency", accounting::to_string(claim.adjacency)},
      {"not_private", declared.not_private},
      {"config_hash", declared.config_hash},
      {"seal", declared.sealed ? "verified" : "not verified: " + declared.not_sealed},
  };
  if (claim.lower) object["epsilon"]["lower"] = *claim.lower;
  if (!is_public) {
    object["steps"] = summary.observed.steps;
    object["trace_head"] = summary.observed.trace_head;
    object["accuracy"] = nullptr;
    if (summary.observed.accuracy) object["accuracy"] = *summary.observed.accuracy;
  }
  print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_text(const report::RunSummary& summary, const std::string& out, bool is_public) {
  const report::Declared& declared = summary.declared;
  print("{} ({})\n", out, is_public ? "public" : "confidential");
  print("  {}\n", report::seal_sentence(declared));
  if (!declared.not_private.empty()) {
    for (const std::string& reason : declared.not_private) print("  not private: {}\n", reason);
    return;
  }
  print("  {}: epsilon ≤ {} at delta {} ({})\n", report::to_string(declared.ended),
        brief_up(declared.claim.upper), declared.claim.delta,
        accounting::to_string(declared.claim.adjacency));
}

}  // namespace

void add_report(Command& command) {
  auto options = std::make_shared<Options>();
  command.argument("RUN", options->run, "Directory of the run").required().reads_folder();
  command.flag("--public", options->is_public, "Leave out everything that depends on the data");
  command
      .option("--out", "FILE", options->out,
              "Report; RUN/report.html or RUN/report-public.html if not given")
      .writes_file();
  command
      .option("--ledger", "FILE", options->ledger,
              "Ledger to show and embed; the one the run wrote to if not given")
      .reads_file();
  command
      .option("--secret", "FILE", options->secret,
              "The run's secret.key, if you moved it; RUN/secret.key if not given")
      .reads_file();
  command.json(options->json);
  command.action([options] {
    const std::string out = options->out.empty()
                                ? report::default_report(options->run, options->is_public).string()
                                : options->out;
    std::optional<std::filesystem::path> ledger;
    if (!options->ledger.empty()) ledger = options->ledger;
    std::optional<std::filesystem::path> secret;
    if (!options->secret.empty()) secret = options->secret;
    const report::RunSummary summary =
        report::write_report(options->run, options->is_public, out, ledger, secret);
    (options->json ? print_json : print_text)(summary, out, options->is_public);
  });
}

}  // namespace discreet::cli
