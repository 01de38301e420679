#include "cli/demo/governed_demo.h"

#include <fmt/core.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/contributions.h"
#include "cli/demo/governed_corpus.h"
#include "cli/input.h"
#include "cli/print.h"
#include "cli/release_run.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/json.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/ledger/contribution_trace.h"
#include "discreet/ledger/ledger.h"
#include "discreet/ledger/verify.h"
#include "discreet/ledger/withdrawal.h"
#include "discreet/release/inference_gate.h"
#include "discreet/report/html.h"

namespace discreet::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// The run, its corpus and its ledger, as the demo's acts see them.
struct Stage {
  fs::path run;
  GovernedCorpus corpus;
  Digest leaver{};
  fs::path ledger() const { return run / "ledger.db"; }
  admission::SigningKey key(const char* file) const {
    return read_key(corpus.at(file).string(), {});
  }
};

std::uint64_t now() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

Stage set_stage(const TrainingOptions& options) {
  Stage out{options.out, {fs::path(options.out) / "corpus"}, {}};
  if (!options.resume || !fs::exists(out.corpus.at(GovernedCorpus::kConfig)))
    out.corpus = make_governed_corpus(out.run);
  const Bytes hash =
      from_hex(read_input(out.corpus.at(GovernedCorpus::kLeaver).string()).substr(0, 64));
  std::copy(hash.begin(), hash.end(), out.leaver.begin());
  return out;
}

// The hospital signs a withdrawal, the steward records it; the run sees it at its next epoch.
void withdraw(const Stage& stage) {
  ledger::Ledger ledger = ledger::Ledger::open(stage.ledger(), stage.key(GovernedCorpus::kSteward));
  const std::vector events = {ledger::sign_withdrawal(stage.key(GovernedCorpus::kHospital),
                                                      ledger.state().header().origin, stage.leaver,
                                                      "the patient asked", now())};
  ledger.withdraw(events);
}

double epsilon(std::uint64_t micro) { return static_cast<double>(micro) / ledger::kMicro; }

json refusals_of(const fs::path& file) {
  ledger::Store store(file, ledger::Store::Mode::kRead);
  ledger::Store::Leaves leaves(store, 0);
  json out = json::object();
  for (ledger::Store::Leaf leaf; leaves.next(leaf);)
    if (const auto entry = ledger::decode_entry(leaf.content);
        const auto* refusals = std::get_if<ledger::Refusals>(&entry))
      for (const auto& [reason, count] : refusals->counts) out[reason] = count;
  return out;
}

json withdrawal_of(const Stage& stage) {
  const fs::path proof = stage.run / "withdrawal.json";
  const auto steward = stage.key(GovernedCorpus::kSteward);
  write_atomically(proof,
                   bytes_of(ledger::withdrawal_bundle(stage.ledger(), steward, stage.leaver)));
  const auto verdict = ledger::verify_bundle(read_input(proof.string()), steward.public_key());
  return {{"descriptor_hash", to_hex(stage.leaver)},
          {"epochs_before", verdict.uses},
          {"epsilon", epsilon(verdict.spend)},
          {"proof", proof.string()},
          {"proof_verified", verdict.ok}};
}

json ledger_of(const Stage& stage) {
  ledger::VerifyOptions how;
  how.key = stage.key(GovernedCorpus::kSteward).public_key();
  how.checkpoint = read_input((stage.run / "ledger.note").string());
  const ledger::Verification found = ledger::verify(stage.ledger(), how);
  if (!found.ok) throw Error(ErrorCode::kMalformed, "demo", found.problem);
  json classes = json::array();
  for (const ledger::ClassTotal& c : found.classes)
    classes.push_back({{"class", c.admissibility_class},
                       {"contributions", c.contributions},
                       {"epsilon", epsilon(c.most_spent)}});
  return {{"file", stage.ledger().string()},
          {"verified", true},
          {"entries", found.size},
          {"epochs", found.counts.epochs},
          {"attestations", found.attestations},
          {"checkpoints", found.counts.notes},
          {"delta", static_cast<double>(found.header->delta) / ledger::kAtto},
          {"classes", classes}};
}

// The model is released under the steward's key, and a service asks its gate twice.
json release_and_ask(const Stage& stage) {
  ReleaseInput input;
  input.run = stage.run;
  input.terms.issued = now();
  // The requester knows that a contribution of the model was withdrawn after it had been used.
  input.terms.generation = release::parse_scopes(
      R"({"classify": {"purposes": ["research"], "serves_withdrawn": true}})");
  const auto steward = stage.key(GovernedCorpus::kSteward);
  const Released released = release_run(input, steward, stage.key(GovernedCorpus::kSteward));
  const release::Gate gate(read_input(released.path.string()),
                           {steward.public_key(), released.manifest.model, stage.ledger()});
  json asked = json::array();
  for (const char* rights : {"{}", R"({"classes": ["open"]})"}) {
    const json request = {
        {"generation_class", "classify"}, {"purpose", "research"}, {"rights", read_json(rights)}};
    const release::Decision d = gate.decide(release::parse_request(request.dump()));
    asked.push_back({{"request", request},
                     {"allowed", d.allowed()},
                     {"reason", to_string(d.reason)},
                     {"sentence", d.sentence}});
  }
  return {{"manifest", released.path.string()}, {"entry", *released.entry}, {"asked", asked}};
}

void print_acts(const json& acts, const Stage& stage) {
  print("\nRejected by the gate\n ");
  for (const auto& [reason, count] : acts["refused"].items())
    print("  {} {}", count.get<std::uint64_t>(), reason);
  const json& left = acts["withdrawal"];
  print(
      "\n\nWithdrawn midway\n  contribution   {}, by the hospital that attested it\n"
      "  used           in {} epochs before, in none after; epsilon ≤ {:.6f}, counting every "
      "planned step\n"
      "  proof          {} ({})\n",
      left["descriptor_hash"].get<std::string>(), left["epochs_before"].get<std::uint64_t>(),
      left["epsilon"].get<double>(), left["proof"].get<std::string>(),
      left["proof_verified"] ? "VERIFIED" : "BROKEN");
  const json& ledger = acts["ledger"];
  print("\nThe ledger\n  VERIFIED       {} entries, {} signed checkpoints, {} attestations\n",
        ledger["entries"].get<std::uint64_t>(), ledger["checkpoints"].get<std::uint64_t>(),
        ledger["attestations"].get<std::uint64_t>());
  for (const json& c : ledger["classes"])
    print("  {:<14} {} contributions, epsilon ≤ {:.6f} at delta {}, zero_out\n",
          c["class"].get<std::string>(), c["contributions"].get<std::uint64_t>(),
          c["epsilon"].get<double>(), ledger["delta"].get<double>());
  print(
      "  check it       discreet ledger verify {} --public-key {}/corpus/steward.pub \\\n"
      "                   --checkpoint {}/ledger.note\n",
      stage.ledger().string(), stage.run.string(), stage.run.string());
  if (!acts.contains("release")) return;
  const json& release = acts["release"];
  print("\nReleased\n  manifest       {}, entry {} of the ledger\n",
        release["manifest"].get<std::string>(), release["entry"].get<std::uint64_t>());
  for (const json& a : release["asked"])
    print("  {:<14} rights {}: {}\n", a["allowed"] ? "ALLOWED" : "DENIED",
          a["request"]["rights"].dump(), a["sentence"].get<std::string>());
}

}  // namespace

void run_governed_demo(const TrainingOptions& options) {
  const Stage stage = set_stage(options);
  TrainingOptions run = options;
  run.resume = true;  // its directory holds the corpus already
  bool gone = false;
  const Outcome outcome =
      train_and_report(run, read_input(stage.corpus.at(GovernedCorpus::kConfig).string()), "demo",
                       stage.corpus.folder, [&](const training::Progress& p) {
                         if (gone || 2 * p.step < p.planned.value_or(0)) return;
                         gone = true;
                         withdraw(stage);
                       });
  json acts = {{"refused", refusals_of(stage.ledger())}};
  if (!gone) withdraw(stage);
  acts["withdrawal"] = withdrawal_of(stage);
  // A model without a claim is not released: one stopped, or under --insecure-seed.
  if (outcome.result.ended == training::Ended::kCompleted && outcome.result.not_private.empty())
    acts["release"] = release_and_ask(stage);
  acts["ledger"] = ledger_of(stage);
  // The page of the run knows the withdrawal and the release only now.
  if (outcome.report) report::write_report(stage.run, false, *outcome.report);
  if (options.json) {
    json out = to_json(outcome);
    out["governed"] = std::move(acts);
    print("{}\n", out.dump());
    return;
  }
  print_text(outcome, fmt::format("discreet demo --governed --out {}", options.out));
  print_acts(acts, stage);
}

}  // namespace discreet::cli
