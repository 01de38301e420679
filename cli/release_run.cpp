#include "cli/release_run.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <set>

#include "cli/contributions.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/ledger/ledger.h"
#include "discreet/release/envelope.h"
#include "discreet/report/summary.h"
#include "discreet/run/trace.h"
#include "discreet/training/network.h"
#include "discreet/training/safetensors.h"

namespace discreet::cli {
namespace {

constexpr const char* kModel = "model.safetensors";

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidInput, "release", sentence);
}

ModelLayout layout_of(ByteView model, const Config& config) {
  std::vector<Tensor> tensors;
  for (training::NamedTensor& tensor : training::safetensors_shapes(model))
    tensors.push_back({.name = std::move(tensor.name), .shape = std::move(tensor.shape)});
  training::assign_groups(tensors, config.model.groups);
  const DpConfig& dp = config.privacy;
  return ModelLayout(std::move(tensors)).with_public(dp.public_modules, dp.public_groups);
}

void require_claim(const report::Declared& run) {
  if (!run.not_private.empty())
    refuse(fmt::format("the run promises nothing ({}): there is nothing to sign",
                       run.not_private.front()));
  using report::Ended;
  if (run.ended != Ended::kCompleted && run.ended != Ended::kBudgetReached &&
      run.ended != Ended::kInterrupted)
    refuse(
        fmt::format("the run is {}, so that its model has no final claim; finish it with "
                    "'discreet train --resume'",
                    to_string(run.ended)));
}

// What is signed is what the run wrote, and not what someone put into its directory since.
void require_seal(const report::Declared& run, bool unsealed) {
  if (unsealed) return;
  if (!run.sealed)
    refuse(fmt::format(
        "{}; nothing was signed. To sign all the same give --unsealed, and the manifest "
        "says so",
        report::seal_sentence(run)));
  if (!run.model_digest)
    refuse(
        "the trace does not name the model's SHA-256, so that any model could be signed under its "
        "claim; resume the run, which writes it, or give --unsealed");
}

// Where the run's ledger is, and the note it kept; none if the run had no corpus.
struct Kept {
  std::filesystem::path ledger;
  std::string note;
};
std::optional<Kept> kept_by(const ReleaseInput& input, const Config& config) {
  if (!config.corpus.policy && !input.ledger) return std::nullopt;
  const std::filesystem::path note = input.run / "ledger.note";
  if (!std::filesystem::exists(note))
    refuse(
        fmt::format("{} is not there: the run did not write to a ledger, and a run of a corpus "
                    "is released with one only",
                    note.string()));
  const std::filesystem::path ledger =
      input.ledger ? *input.ledger
                   : std::filesystem::path(
                         config.corpus.ledger.value_or((input.run / "ledger.db").string()));
  if (!std::filesystem::exists(ledger))
    refuse(fmt::format("the ledger {} is not there; give --ledger", ledger.string()));
  const Bytes bytes = read_file(note, 65536);
  return Kept{ledger, {bytes.begin(), bytes.end()}};
}

// The names under which the run reserved epochs: its trace has them, and the note it kept was
// signed when it reserved the last one, or when it was released.
std::vector<std::string> names_of(const report::RunSummary& run, const Kept& kept) {
  std::set<std::string> names;
  for (const run::TraceLine& line : run.trace) {
    if (line.kind != "run_header" && line.kind != "resumed") continue;
    const auto at = nlohmann::json::json_pointer("/corpus/ledger/run");
    const auto fields = read_json(line.text);
    if (fields.contains(at) && fields.at(at).is_string())
      names.insert(fields.at(at).get<std::string>());
  }
  // RUN/ledger.note is only as good as the directory; the seal holds a note of its own.
  const std::string& note = run.ledger_note ? *run.ledger_note : kept.note;
  if (const auto name = release::run_of_note(kept.ledger, note)) names.insert(*name);
  if (names.empty())
    refuse("neither trace nor ledger.note say which run of the ledger this is; give --name");
  return {names.begin(), names.end()};
}

}  // namespace

Released release_run(const ReleaseInput& input, const admission::SigningKey& key,
                     std::optional<admission::SigningKey> ledger_key) {
  const report::RunSummary summary = report::summarize(input.run, input.secret);
  const report::Declared& run = summary.declared;
  require_claim(run);
  require_seal(run, input.unsealed);
  if (!std::filesystem::exists(input.run / kModel))
    refuse(fmt::format("{} is not there: the run left no model", (input.run / kModel).string()));
  const Bytes model = read_file(input.run / kModel, std::size_t{1} << 40);
  if (training::safetensors_metadata(model)["config_hash"] != run.config_hash)
    throw Error(ErrorCode::kMalformed, "release",
                "model.safetensors is of a run with another configuration, or of a version that "
                "did not write its hash beside the weights; resume the run and finish it again");
  if (run.model_digest && to_hex(sha256(model)) != *run.model_digest)
    throw Error(ErrorCode::kMalformed, "release", "model.safetensors is not the model of this run");

  release::RunFacts facts;
  facts.model = {{kModel, sha256(model)}};
  facts.layout = layout_of(model, run.config);
  facts.epsilon = run.claim.upper;
  facts.delta = run.claim.delta;
  facts.adjacency = run.claim.adjacency;
  for (const report::GroupClaim& group : run.groups) facts.groups[group.records] = group.epsilon;
  facts.interrupted = run.ended == report::Ended::kInterrupted;
  facts.sealed = run.sealed;
  facts.runs = input.names;

  const std::optional<Kept> kept = kept_by(input, run.config);
  std::optional<release::LedgerAt> at;
  // Held from here on: what is drafted is what is recorded, and what a killed writer left is gone.
  std::optional<ledger::Ledger> ledger;
  if (run.config.corpus.policy && !summary.ledger_note && !input.unsealed)
    refuse(
        "the run's seal does not hold the note of its ledger, as in runs of earlier versions, so "
        "that an earlier state of the ledger could be put back; resume the run, which seals it, or "
        "give --unsealed");
  if (kept) {
    if (run.config.corpus.ledger_key && !ledger_key)
      ledger_key = read_key(*run.config.corpus.ledger_key, "");
    if (!ledger_key) refuse("the release is recorded in the run's ledger; give --ledger-key");
    at = {kept->ledger, ledger_key->public_key(), kept->note};
    ledger = ledger::Ledger::open(kept->ledger, std::move(*ledger_key), kept->note);
    if (summary.ledger_note) ledger->require_extends(*summary.ledger_note);
    if (facts.runs.empty()) facts.runs = names_of(summary, *kept);
  } else if (facts.runs.empty()) {
    facts.runs = {
        std::filesystem::absolute(input.run / ".").lexically_normal().parent_path().filename()};
  }
  Released out{release::draft(facts, input.terms, at),
               input.out.empty() ? input.run / "release.json" : input.out,
               {},
               {}};
  if (const auto folder = std::filesystem::absolute(out.path).parent_path();
      !std::filesystem::is_directory(folder))
    refuse(fmt::format("{} is not a folder; nothing was recorded", folder.string()));
  const std::string envelope = release::sign(out.manifest, key);
  out.hash = release::hash_of(envelope);
  // Recorded before it is published: a manifest that is nowhere is harmless, one that no
  // contributor can find is not.
  if (ledger) {
    for (const std::string& name : out.manifest.runs) ledger->release(name, out.hash);
    out.entry = ledger->state().size() - 1;
    write_atomically(input.run / "ledger.note", bytes_of(ledger->note()));
  }
  write_atomically(out.path, bytes_of(envelope));
  return out;
}

}  // namespace discreet::cli
