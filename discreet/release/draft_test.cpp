#include "discreet/release/draft.h"

#include <gtest/gtest.h>

#include <limits>

#include "discreet/accounting/pld.h"
#include "discreet/base/error.h"
#include "discreet/ledger/verify.h"
#include "discreet/release/record.h"
#include "discreet/release/release_testing.h"

namespace discreet::release {
namespace {

using namespace testing;

ErrorCode code_of(const auto& work, const std::string& has = "") {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_NE(error.sentence().find(has), std::string::npos) << error.sentence();
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kIoError;
}

TEST(Draft, SaysPerLayerWhichClassesTouchedItUnderWhichBoundsAndSpend) {
  Corpus corpus;
  const Manifest m = draft(facts(), release_terms(), corpus.at());
  using Names = std::vector<std::string>;
  ASSERT_EQ(m.layers.size(), 4U);
  EXPECT_EQ(m.layers[0], (Layer{"layer0", {"public"}}));
  EXPECT_EQ(m.layers[1], (Layer{"layer1", {"public"}}));
  EXPECT_EQ(m.layers[2].classes, (Names{"clinical", "public"}));
  EXPECT_EQ(m.layers[3].classes, (Names{"clinical", "public"}));
  ASSERT_EQ(m.adapters.size(), 1U);
  // The whole model is the adapter too: that is what a layout calls trained privately.
  EXPECT_EQ(m.adapters[0], (Adapter{"notes", {"diary", "public"}, {"recall"}}));

  ASSERT_EQ(m.postures.size(), 3U);
  const Posture& clinical = m.postures[0];
  EXPECT_EQ(clinical.admissibility_class, "clinical");
  EXPECT_EQ(clinical.contributions, 3U);
  EXPECT_EQ(clinical.withdrawn, 0U);
  EXPECT_EQ(clinical.epochs, 10U) << "planned, of which two were taken";
  EXPECT_EQ(clinical.clip, 1'000'000'000U);
  EXPECT_EQ(clinical.multiplier, 1'000'000'000U);
  EXPECT_EQ(clinical.uses, 4U);
  EXPECT_EQ(clinical.deviation, 3'000'000'000U);
  // Spends are those the ledger's own accounting recorded, over all runs.
  std::map<std::string, std::uint64_t> spent;
  for (const auto& c : corpus.ledger.state().contributions())
    spent[corpus.ledger.state().class_name(c.class_index)] = std::max(
        spent[corpus.ledger.state().class_name(c.class_index)], corpus.ledger.state().spend_of(c));
  for (const Posture& p : m.postures) EXPECT_EQ(p.spend, spent.at(p.admissibility_class));
  EXPECT_GT(m.postures[2].spend, clinical.spend) << "public has been in run-2 too";

  EXPECT_EQ(m.ledger->note, corpus.ledger.note());
  EXPECT_EQ(m.ledger->accountant, "pld");
  EXPECT_EQ(m.generation[0].layers, (Names{"layer0", "layer1", "layer2", "layer3"}));
  EXPECT_EQ(m.generation[1].layers, (Names{"layer0", "layer1"}));
}

TEST(Draft, OfALedgerWithAnEpochWithoutStepsIsRefused) {
  const Folder folder;
  ledger::Store store(folder / "l.db", ledger::Store::Mode::kCreate);
  ledger::Header header = ledger::testing::header();
  header.key = raw(ledger_key());
  ledger::Terms terms = ledger::testing::terms();
  terms.run = "run-1";
  terms.steps = 0;
  ledger::Store::Batch batch;
  for (const ledger::Entry& entry :
       std::vector<ledger::Entry>{header, ledger::Policy{}, terms, ledger::EpochEnd{"run-1", 0, 0}})
    batch.add(ledger::encode(entry));
  store.append(0, batch);
  ledger::State state;
  state.take(ledger::Entry(header));
  EXPECT_EQ(code_of([&] { record_of(store, state, {"run-1"}, 4, std::nullopt); }, "0 steps"),
            ErrorCode::kMalformed);
}

TEST(Draft, RoundsItsPromiseUp) {
  RunFacts f = facts();
  f.epsilon = 1.2500001;
  f.delta = 0.25;
  const Manifest m = draft(f, ReleaseTerms{.issued = kToday}, std::nullopt);
  EXPECT_EQ(m.privacy.epsilon, 1'250'001U);
  EXPECT_EQ(m.privacy.delta, 250'000'000'000'000'000U);
  f.delta = 1e-5;  // as binary64 it is more than 10^-5
  EXPECT_EQ(draft(f, ReleaseTerms{.issued = kToday}, std::nullopt).privacy.delta,
            10'000'000'000'001U);
  f.epsilon = std::numeric_limits<double>::infinity();
  EXPECT_EQ(code_of([&] { draft(f, ReleaseTerms{.issued = kToday}, std::nullopt); }, "epsilon"),
            ErrorCode::kInvalidInput);
}

TEST(Draft, WithoutALedgerTheRecordsAreUnattested) {
  ReleaseTerms t;
  t.issued = kToday;
  const Manifest m = draft(facts(), t, std::nullopt);
  EXPECT_FALSE(m.ledger);
  ASSERT_EQ(m.postures.size(), 1U);
  EXPECT_EQ(m.postures[0].admissibility_class, kUnattested);
  EXPECT_EQ(m.postures[0].spend, m.privacy.epsilon);
  for (const Layer& layer : m.layers)
    EXPECT_EQ(layer.classes, (std::vector<std::string>{std::string(kUnattested)}));
}

TEST(Draft, CountsWhatWasWithdrawnBefore) {
  Corpus corpus(true);
  const Manifest m = draft(facts(), release_terms(), corpus.at());
  EXPECT_EQ(m.postures[0].contributions, 3U) << "the withdrawn one was used in the first epoch";
  EXPECT_EQ(m.postures[0].withdrawn, 1U);
  EXPECT_EQ(m.postures[2].withdrawn, 0U);
}

// Somebody who saw results may have stopped it: its spend at that time is not a bound, its plan is.
TEST(Draft, AnInterruptedRunIsReleasedWithWhatItPlanned) {
  const auto stopped_after = [](std::uint64_t epochs, std::uint64_t schema) {
    Folder folder;
    auto ledger =
        ledger::Ledger::create(folder / "l.db", header("pld", schema), bytes_of("p"), ledger_key());
    ledger.admit(contributions(0, 2));
    for (std::uint64_t n = 0; n < epochs; ++n)
      ledger.reserve_epoch("run-1", n, kToday,
                           {terms_of("public", profile(cbor::array({"whole"})))});
    RunFacts f = facts();
    f.epsilon = 0.01;
    f.interrupted = true;
    return draft(f, release_terms(),
                 LedgerAt{folder / "l.db", ledger_key().public_key(), ledger.note()});
  };
  const Manifest early = stopped_after(1, 2), late = stopped_after(7, 2);
  EXPECT_EQ(early.postures, late.postures);
  EXPECT_EQ(early.privacy.epsilon, late.privacy.epsilon);
  accounting::PldAccountant plan(accounting::Adjacency::kZeroOut);
  plan.add(accounting::Event(accounting::Gaussian{3.0}, accounting::Poisson{0.01},
                             accounting::Adjacency::kZeroOut),
           1000);
  const double planned = plan.epsilon(1e-5).value.upper;
  EXPECT_GE(static_cast<double>(early.privacy.epsilon) / ledger::kMicro, planned);
  EXPECT_NEAR(static_cast<double>(early.privacy.epsilon) / ledger::kMicro, planned, 3e-6);
  EXPECT_NE(early.privacy.covers.back().find("however it ended"), std::string::npos);
  // With a ledger without plans it is rejected; a finished run is released under the old sentence.
  EXPECT_EQ(code_of([&] { stopped_after(1, 1); }, "interrupted"), ErrorCode::kInvalidInput);
  Corpus old(false, 1);
  const Manifest finished = draft(facts(), release_terms(), old.at());
  EXPECT_EQ(finished.postures[0].epochs, 2U);
  EXPECT_NE(finished.privacy.covers.back().find("each ended as it was planned"), std::string::npos);
}

TEST(Draft, AProfileItCannotReadMayHavePermittedEverything) {
  Corpus corpus;
  corpus.ledger.reserve_epoch("run-3", 0, kToday, {terms("clinical")});
  RunFacts f = facts();
  f.runs = {"run-3"};
  const Manifest m = draft(f, release_terms(), corpus.at());
  for (const Layer& layer : m.layers)
    EXPECT_EQ(layer.classes, (std::vector<std::string>{"clinical"})) << layer.name;
}

TEST(Draft, RefusesAProfileThatIsNotOfThisModel) {
  Corpus corpus;
  corpus.ledger.reserve_epoch("run-3", 0, kToday,
                              {terms_of("clinical", profile(cbor::array({"layers", 9, 11})))});
  RunFacts f = facts();
  f.runs = {"run-3"};
  EXPECT_EQ(code_of([&] { draft(f, release_terms(), corpus.at()); }, "layer 11"),
            ErrorCode::kInvalidDpConfig);
}

TEST(Draft, RefusesLedgersThatAreNotTheRuns) {
  Corpus corpus;
  LedgerAt at = corpus.at();
  at.key = key(9).public_key();
  EXPECT_EQ(code_of([&] { draft(facts(), release_terms(), at); }, "the header names public key"),
            ErrorCode::kMalformed);

  Corpus other;  // the same ledger up to here: it forks
  other.ledger.reserve_epoch("run-4", 0, kToday, epoch());
  corpus.ledger.reserve_epoch("run-5", 0, kToday, epoch());
  at = corpus.at();
  at.note = other.ledger.note();
  EXPECT_EQ(code_of([&] { draft(facts(), release_terms(), at); }, "earlier checkpoint"),
            ErrorCode::kMalformed);

  RunFacts stranger = facts();
  stranger.runs = {"run-9"};
  EXPECT_EQ(code_of([&] { draft(stranger, release_terms(), corpus.at()); }, "run-9"),
            ErrorCode::kInvalidInput);
  at = corpus.at();
  at.path = corpus.folder / "nothing.db";
  EXPECT_THROW(draft(facts(), release_terms(), at), Error);
}

TEST(Draft, RefusesARunWhoseContributionsWereSummarised) {
  Folder folder;
  auto ledger = ledger::Ledger::create(folder / "l.db", header(), bytes_of("p"), ledger_key());
  ledger.admit(contributions(0, 2, "public", kToday + 10));
  ledger.reserve_epoch("run-1", 0, kToday, {terms("public")});
  ASSERT_TRUE(ledger.summarise(kToday + 5000));
  EXPECT_EQ(code_of(
                [&] {
                  draft(facts(), release_terms(),
                        LedgerAt{folder / "l.db", ledger_key().public_key(), ledger.note()});
                },
                "summarised"),
            ErrorCode::kInvalidInput);
}

TEST(Draft, RefusesScopesThatNameWhatIsNotThere) {
  Corpus corpus;
  ReleaseTerms t = release_terms();
  t.generation["x"].layers = {{"layer9"}};
  EXPECT_EQ(code_of([&] { draft(facts(), t, corpus.at()); }, "layer9"), ErrorCode::kInvalidInput);
  t = release_terms();
  t.generation["x"].adapters = {"gone"};
  EXPECT_EQ(code_of([&] { draft(facts(), t, corpus.at()); }, "gone"), ErrorCode::kInvalidInput);
  t = release_terms();
  t.generation.clear();
  EXPECT_EQ(code_of([&] { draft(facts(), t, corpus.at()); }), ErrorCode::kInvalidInput);
}

TEST(Draft, ReadsScopesStrictly) {
  const auto scopes = parse_scopes(
      R"({"predict": {}, "embed": {"layers": ["a"], "adapters": ["b"], "purposes": ["c"],
          "serves_withdrawn": true}})");
  EXPECT_FALSE(scopes.at("predict").layers);
  EXPECT_EQ(scopes.at("predict").purposes, (std::vector<std::string>{"any"}));
  EXPECT_EQ(scopes.at("embed").layers, (std::vector<std::string>{"a"}));
  EXPECT_TRUE(scopes.at("embed").serves_withdrawn);
  for (const char* bad :
       {"", "[]", "{}", "{\"a\": 1}", R"({"a": {"layer": []}})", R"({"a": {"layers": "all"}})",
        R"({"a": {"serves_withdrawn": 1}})", R"({"a": {}, "a": {"serves_withdrawn": true}})"})
    EXPECT_EQ(code_of([&] { parse_scopes(bad); }), ErrorCode::kInvalidInput) << bad;
}

TEST(Draft, ARunThatWentOnUnderAnotherNameHasThePosturesOfBoth) {
  Corpus corpus;
  corpus.ledger.reserve_epoch("run-3", 0, kToday,
                              {terms_of("diary", profile(cbor::array({"adapter", "notes"})))});
  RunFacts f = facts();
  f.runs = {"run-3", "run-2"};
  const Manifest m = draft(f, release_terms(), corpus.at());
  EXPECT_EQ(m.runs, (std::vector<std::string>{"run-2", "run-3"}));
  ASSERT_EQ(m.postures.size(), 2U);
  EXPECT_EQ(m.postures[0].admissibility_class, "diary");
  EXPECT_EQ(m.postures[1].admissibility_class, "public");
}

TEST(Draft, ANoteNamesItsRun) {
  Corpus corpus;
  EXPECT_EQ(run_of_note(corpus.folder / "ledger.db", corpus.ledger.note()), "run-1");
  corpus.ledger.release("run-2", {});
  EXPECT_EQ(run_of_note(corpus.folder / "ledger.db", corpus.ledger.note()), "run-2");
  corpus.withdraw(0, "public");
  EXPECT_EQ(run_of_note(corpus.folder / "ledger.db", corpus.ledger.note()), std::nullopt);
}

// Soundness E1: the same descriptors and schedule give the same manifest, whatever the payloads;
// what the ledger and the claim say is all that goes in.
TEST(Draft, IsAFunctionOfPublicValues) {
  Corpus one, other;
  EXPECT_EQ(encode(draft(facts(), release_terms(), one.at())),
            encode(draft(facts(), release_terms(), other.at())));
}

}  // namespace
}  // namespace discreet::release
