#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/print.h"
#include "discreet/admission/scaled.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/release/envelope.h"
#include "discreet/release/inference_gate.h"

namespace discreet::cli {
namespace {

using namespace release;
using nlohmann::json;

struct Options {
  std::string manifest, request, public_key, ledger, ledger_key, checkpoint, at;
  std::vector<std::string> model;
  bool json = false;
};

Digest digest_of_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const Digest digest = sha256_of(in);
  if (!in.eof())
    throw Error(ErrorCode::kInvalidInput, "gate",
                fmt::format("'{}' cannot be read: {}", path.string(), std::strerror(errno)));
  return digest;
}

// The files that are served: those given, else those that lie beside the manifest under the names
// it has. These are what it claims; the gate compares.
std::vector<ModelFile> served_files(const Options& options, const std::string& envelope) {
  std::vector<ModelFile> out;
  const auto add = [&](const std::filesystem::path& path) {
    out.push_back({path.filename(), digest_of_file(path)});
  };
  for (const std::string& path : options.model) add(path);
  if (!out.empty()) return out;
  try {
    for (const ModelFile& file : read_unverified(envelope).model) {
      const auto path = std::filesystem::path(options.manifest).parent_path() / file.name;
      if (std::filesystem::is_regular_file(path)) add(path);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMalformed) throw;  // the gate says so
  }
  return out;
}

json described(const Decision& decision, const Gate& gate, const std::string& envelope) {
  const auto& m = gate.manifest();
  json out = {{"allowed", decision.allowed()},
              {"reason", to_string(decision.reason)},
              {"sentence", decision.sentence},
              {"ledger_position", decision.position == 0 ? json() : json(decision.position)},
              {"released_at", gate.released_at() ? json(*gate.released_at()) : json()},
              {"manifest_hash", to_hex(hash_of(envelope))},
              {"runs", m ? json(m->runs) : json()}};
  return out;
}

void print_text(const Decision& decision, const Gate& gate) {
  print("{}: {}\n",
        decision.allowed() ? "ALLOWED" : fmt::format("DENIED {}", to_string(decision.reason)),
        decision.sentence);
  if (decision.position != 0)
    print("  ledger         {} entries{}\n", decision.position,
          gate.released_at() ? fmt::format("; released at entry {}", *gate.released_at()) : "");
}

std::string list(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

void print_scopes(const Manifest& m) {
  for (const Posture& p : m.postures) print("  {}\n", describe(p));
  for (const Layer& layer : m.layers)
    print("  layer          {}: {}\n", layer.name,
          layer.classes.empty() ? "no contribution" : list(layer.classes));
  for (const Adapter& adapter : m.adapters)
    print("  adapter        {}: {}; with {}\n", adapter.name, list(adapter.classes),
          list(adapter.scope));
  for (const GenerationClass& g : m.generation)
    print("  may be asked   {}, for {}: draws on {}{}\n", g.name, list(g.purposes), list(g.layers),
          g.adapters.empty() ? "" : " with " + list(g.adapters));
}

ExitStatus run(const Options& options) {
  const std::string envelope = read_input(options.manifest);
  std::optional<Request> request;
  if (!options.request.empty()) request = parse_request(read_input(options.request));
  Gate::Evidence evidence{admission::PublicKey::from_text(read_input(options.public_key)),
                          served_files(options, envelope)};
  if (!options.ledger.empty()) evidence.ledger = options.ledger;
  if (!options.ledger_key.empty())
    evidence.ledger_key = admission::PublicKey::from_text(read_input(options.ledger_key));
  if (!options.checkpoint.empty()) evidence.checkpoint = read_input(options.checkpoint);
  if (!options.at.empty()) {
    const auto at = static_cast<std::uint64_t>(admission::parse_instant(options.at, "--at"));
    evidence.clock = [at] { return at; };
  }
  const Gate gate(envelope, std::move(evidence));
  const Decision decision = request ? gate.decide(*request) : gate.standing();
  if (options.json) {
    json out = described(decision, gate, envelope);
    if (request) out["generation_class"] = request->generation_class;
    print("{}\n", out.dump());
  } else {
    print_text(decision, gate);
    if (!request && gate.manifest()) print_scopes(*gate.manifest());
  }
  return decision.allowed() ? kDone : kCheckSaysNo;
}

}  // namespace

void add_gate(Command& command) {
  auto options = std::make_shared<Options>();
  command.argument("MANIFEST", options->manifest, "Manifest that 'release' wrote")
      .required()
      .reads_file();
  command
      .argument("REQUEST", options->request,
                "JSON with generation_class, purpose and rights {classes, most_epsilon}; without "
                "it, show whether the manifest holds and what may be asked")
      .reads_file();
  command.option("--public-key", "FILE", options->public_key, "Public key of releases you trust")
      .required()
      .reads_file();
  command
      .option("--model", "FILE", options->model,
              "File that is served; those beside the manifest if not given")
      .reads_file();
  command
      .option("--ledger", "FILE", options->ledger,
              "Current ledger: shows withdrawals and releases that were not recorded")
      .reads_file();
  command
      .option("--ledger-key", "FILE", options->ledger_key,
              "Public key you expect of the ledger; the one in the manifest if not given")
      .reads_file();
  command
      .option("--checkpoint", "FILE", options->checkpoint,
              "Signed note from elsewhere, which the ledger must extend")
      .reads_file();
  command.option("--at", "TIME", options->at, "Decide as of this time; now if not given");
  command.json(options->json);
  command.action([options] { return run(*options); });
}

}  // namespace discreet::cli
