#include <fmt/core.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/contributions.h"
#include "cli/input.h"
#include "cli/numbers.h"
#include "cli/print.h"
#include "cli/release_run.h"
#include "discreet/base/error.h"
#include "discreet/ledger/entry.h"

namespace discreet::cli {
namespace {

using nlohmann::json;

struct Options {
  std::string run, key, passphrase_file, ledger, ledger_key, ledger_passphrase_file, scopes, out,
      secret, max_age_days = "7";
  std::vector<std::string> names;
  bool json = false, unsealed = false;
};

// With every digit, but for the unit that rounding to whole units may have added.
std::string delta_text(std::uint64_t atto) {
  const double delta = static_cast<double>(atto) / ledger::kAtto;
  const std::string brief = fmt::format("{:.12g}", delta);
  return std::stod(brief) >= delta - 1.5 / ledger::kAtto ? brief : fmt::format("{}", delta);
}

double epsilon(std::uint64_t micro) { return static_cast<double>(micro) / ledger::kMicro; }

void print_json(const Released& released) {
  const release::Manifest& m = released.manifest;
  json kinds = json::array(), model = json::object();
  for (const auto& g : m.generation) kinds.push_back(g.name);
  for (const auto& f : m.model) model[f.name] = to_hex(f.sha256);
  print("{}\n", json{{"manifest", released.path.string()},
                     {"manifest_hash", to_hex(released.hash)},
                     {"runs", m.runs},
                     {"model", model},
                     {"epsilon_upper", epsilon(m.privacy.epsilon)},
                     {"delta", static_cast<double>(m.privacy.delta) / ledger::kAtto},
                     {"adjacency", accounting::to_string(m.privacy.adjacency)},
                     {"ledger_position", m.ledger ? json(release::position_of(m)) : json()},
                     {"released_at", released.entry ? json(*released.entry) : json()},
                     {"issued", m.issued},
                     {"max_age", m.max_age},
                     {"generation_classes", kinds}}
                    .dump());
}

void print_text(const Released& released) {
  const release::Manifest& m = released.manifest;
  print("{}\n", released.path.string());
  print("  hash           {}\n", to_hex(released.hash));
  print("  promise        epsilon ≤ {:.6f} at delta = {}, {}\n", epsilon(m.privacy.epsilon),
        delta_text(m.privacy.delta), accounting::to_string(m.privacy.adjacency));
  if (released.entry)
    print("  ledger         {} entries seen; recorded as entry {}\n", release::position_of(m),
          *released.entry);
  else
    print("  ledger         none: the run had no corpus\n");
  for (const auto& p : m.postures) print("  {}\n", release::describe(p));
  for (const auto& g : m.generation)
    print("  may be asked   {}: {} of {} layers, {} adapters\n", g.name, g.layers.size(),
          m.layers.size(), g.adapters.size());
  print("  stale          after {} days; release again before\n",
        static_cast<double>(m.max_age) / 86400);
}

void run(const Options& options) {
  ReleaseInput input;
  input.run = options.run;
  input.out = options.out;
  if (!options.ledger.empty()) input.ledger = options.ledger;
  input.names = options.names;
  if (!options.secret.empty()) input.secret = options.secret;
  input.unsealed = options.unsealed;
  if (!options.scopes.empty())
    input.terms.generation = release::parse_scopes(read_input(options.scopes));
  const double days = parse_number("--max-age-days", options.max_age_days);
  if (!(days > 0 && days <= 36525))
    throw Error(ErrorCode::kInvalidInput, "release", "--max-age-days takes 0 to 36525 days");
  input.terms.max_age = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(days * 86400));
  input.terms.issued =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  std::optional<admission::SigningKey> ledger_key;
  if (!options.ledger_key.empty())
    ledger_key = read_key(options.ledger_key, options.ledger_passphrase_file);
  const Released released =
      release_run(input, read_key(options.key, options.passphrase_file), std::move(ledger_key));
  (options.json ? print_json : print_text)(released);
}

}  // namespace

void add_release(Command& command) {
  auto options = std::make_shared<Options>();
  command.argument("RUN", options->run, "Directory of the run").required().reads_folder();
  command.option("--key", "FILE", options->key, "Private key that signs the release")
      .required()
      .reads_file();
  add_passphrase_option(command, options->passphrase_file);
  command
      .option("--ledger-key", "FILE", options->ledger_key,
              "Private key of the run's ledger, which records the release")
      .reads_file();
  command
      .option("--ledger-passphrase-file", "FILE", options->ledger_passphrase_file,
              "File holding the passphrase of the ledger's key")
      .reads_file();
  command.option("--ledger", "FILE", options->ledger, "Ledger; the run's own if not given")
      .reads_file();
  command.option("--name", "NAME", options->names,
                 "Name of the run in the ledger; as its trace and note say if not given");
  command
      .option("--scopes", "FILE", options->scopes,
              "JSON with generation classes and their layers, adapters, purposes and "
              "serves_withdrawn; one class, predict, that draws on every layer if not given")
      .reads_file();
  command.option("--max-age-days", "DAYS", options->max_age_days,
                 "Age at which gates reject the manifest as stale");
  command
      .option("--secret", "FILE", options->secret,
              "The run's secret.key, if you moved it; RUN/secret.key if not given")
      .reads_file();
  command.flag("--unsealed", options->unsealed,
               "Sign although the run's seal cannot be verified; the manifest says so");
  command.option("--out", "FILE", options->out, "Manifest; RUN/release.json if not given")
      .writes_file();
  command.json(options->json);
  command.action([options] { run(*options); });
}

}  // namespace discreet::cli
