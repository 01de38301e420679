#pragma once

#include <string>

#include "discreet/ledger/ledger_testing.h"
#include "discreet/release/draft.h"
#include "discreet/release/envelope.h"
#include "discreet/release/inference_gate.h"

// A model of four layers and an adapter, trained on three classes of contributions, and its ledger.
//   public      whole model
//   clinical    the upper half: layers 2 and 3
//   diary       the adapter "notes"
namespace discreet::release::testing {

using namespace ledger::testing;
using ledger::testing::hash_of;  // of contributions, in addition to that of envelopes
using release::hash_of;

inline admission::SigningKey release_key() { return key(7); }

inline ModelLayout layout() {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 4; ++i)
    tensors.push_back({.name = "layer" + std::to_string(i) + ".weight", .shape = {2, 2}});
  tensors.push_back({.name = "notes.down", .shape = {2}, .adapter = "notes"});
  return ModelLayout(std::move(tensors));
}

// In the encoding of a policy.
inline Bytes profile(cbor::Value where) {
  return cbor::encode(cbor::map({{"schema", 1},
                                 {"where", std::move(where)},
                                 {"heads", cbor::array({})},
                                 {"experts", cbor::array({})}}));
}
inline ledger::Terms terms_of(const std::string& data_class, Bytes profile) {
  ledger::Terms t = terms(data_class);
  t.profile = std::move(profile);
  return t;
}
inline std::vector<ledger::Terms> epoch() {
  return {terms_of("public", profile(cbor::array({"whole"}))),
          terms_of("clinical", profile(cbor::array({"depth", 500'000'000, 1'000'000'000}))),
          terms_of("diary", profile(cbor::array({"adapter", "notes"})))};
}

inline Digest model_digest() { return sha256(bytes_of("model")); }
inline std::vector<ModelFile> model() { return {{"model.safetensors", model_digest()}}; }

// Two epochs of run-1; contributions 0 to 3 public, 4 to 6 clinical, 7 diary; and an epoch of run-2
// with the public ones only.
struct Corpus {
  explicit Corpus(bool withdraw_between = false, std::uint64_t schema = ledger::kSchemaVersion)
      : ledger(ledger::Ledger::create(folder / "ledger.db", header("pld", schema),
                                      bytes_of("policy"), ledger_key())) {
    ledger.admit(contributions(0, 4, "public"));
    ledger.admit(contributions(4, 7, "clinical"));
    ledger.admit(contributions(7, 8, "diary"));
    ledger.reserve_epoch("run-1", 0, kToday, epoch());
    if (withdraw_between) withdraw(4, "clinical");
    ledger.reserve_epoch("run-2", 0, kToday, {terms_of("public", profile(cbor::array({"whole"})))});
    ledger.reserve_epoch("run-1", 1, kToday, epoch());
  }
  void withdraw(std::uint32_t n, const std::string& data_class) {
    const ledger::Withdrawal w[] = {
        withdrawal(hash_of(contribution(n, data_class)), contributor_key())};
    ledger.withdraw(w);
  }
  LedgerAt at() const { return {folder / "ledger.db", ledger_key().public_key(), ledger.note()}; }
  // Signs a manifest and records its release.
  std::string release(const Manifest& manifest) {
    const std::string envelope = sign(manifest, release_key());
    for (const std::string& run : manifest.runs) ledger.release(run, hash_of(envelope));
    return envelope;
  }

  Folder folder;
  ledger::Ledger ledger;
};

inline RunFacts facts() {
  return {{"run-1"}, model(), layout(), 1.25, 1e-5, accounting::Adjacency::kZeroOut};
}

// "answer" draws on all layers, "embed" on the lower two, "recall" on all layers and the adapter.
inline ReleaseTerms release_terms() {
  ReleaseTerms t;
  t.issued = kToday;
  t.max_age = 1000;
  t.generation = {
      {"answer", {}},
      {"embed", {.layers = {{"layer1", "layer0"}}, .adapters = {}, .purposes = {"any"}}},
      {"recall", {.layers = {}, .adapters = {"notes"}, .purposes = {"care", "audit"}}}};
  return t;
}

inline Gate::Evidence evidence(std::uint64_t now = kToday) {
  Gate::Evidence e{release_key().public_key(), model()};
  e.clock = [now] { return now; };
  return e;
}

inline Request request(std::string generation_class, std::string purpose = "research") {
  return {std::move(generation_class), std::move(purpose), {}};
}

}  // namespace discreet::release::testing
