#include "discreet/release/inference_gate.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "discreet/base/error.h"
#include "discreet/ledger/withdrawal.h"
#include "discreet/release/release_testing.h"

namespace discreet::release {
namespace {

using namespace testing;

// A recorded release of run-1.
struct Service {
  explicit Service(bool withdraw_between = false, ReleaseTerms terms = release_terms())
      : corpus(withdraw_between), envelope(corpus.release(draft(facts(), terms, corpus.at()))) {}
  std::filesystem::path ledger() const { return corpus.folder / "ledger.db"; }
  Gate::Evidence with_ledger() const {
    Gate::Evidence e = evidence();
    e.ledger = ledger();
    return e;
  }
  Corpus corpus;
  std::string envelope;
};

Reason reason(const std::string& envelope, Gate::Evidence e, const Request& r = request("embed")) {
  const Gate gate(envelope, std::move(e));
  const Decision decision = gate.decide(r);
  EXPECT_FALSE(decision.sentence.empty());
  return decision.reason;
}

TEST(ReleaseGate, AllowsWhatIsInScopeAndSaysWhereInTheLedger) {
  const Service service;
  const Gate offline(service.envelope, evidence());
  const Decision decision = offline.decide(request("answer"));
  EXPECT_TRUE(decision.allowed()) << decision.sentence;
  EXPECT_EQ(decision.position, position_of(*offline.manifest()));
  const Gate online(service.envelope, service.with_ledger());
  EXPECT_TRUE(online.decide(request("answer")).allowed());
  EXPECT_EQ(online.decide(request("answer")).position, service.corpus.ledger.state().size());
  EXPECT_EQ(online.released_at(), service.corpus.ledger.state().size() - 1);
}

TEST(ReleaseGate, RefusesClassesOutsideTheRightsOnlyWhereTheirLayersAreDrawnOn) {
  const Service service;
  const Gate gate(service.envelope, evidence());
  Request r = request("answer");
  r.rights.classes = {"public"};
  EXPECT_EQ(gate.decide(r).reason, Reason::kClassNotPermitted);
  EXPECT_NE(gate.decide(r).sentence.find("clinical"), std::string::npos);
  r.generation_class = "embed";  // the lower layers: clinical was never permitted there
  EXPECT_TRUE(gate.decide(r).allowed());
  r.generation_class = "answer";
  r.rights.classes = {"clinical", "public"};
  EXPECT_TRUE(gate.decide(r).allowed());
  r.rights.classes = std::vector<std::string>{};
  EXPECT_EQ(gate.decide(r).reason, Reason::kClassNotPermitted);
}

TEST(ReleaseGate, AnAdaptersContributionsCountWhereItIsDeployedOnly) {
  const Service service;
  const Gate gate(service.envelope, evidence());
  Request r = request("recall", "care");
  r.rights.classes = {"clinical", "public"};
  EXPECT_EQ(gate.decide(r).reason, Reason::kClassNotPermitted);
  EXPECT_NE(gate.decide(r).sentence.find("diary"), std::string::npos);
  r.generation_class = "answer";
  EXPECT_TRUE(gate.decide(r).allowed());
}

TEST(ReleaseGate, RefusesContributionsThatSpentMoreThanTheRightsAllow) {
  const Service service;
  const Gate gate(service.envelope, evidence());
  const Manifest& m = *gate.manifest();
  const std::uint64_t clinical = m.postures[0].spend, open_data = m.postures[2].spend;
  ASSERT_LT(clinical, open_data);
  Request r = request("answer");
  r.rights.most_epsilon = open_data;
  EXPECT_TRUE(gate.decide(r).allowed());
  r.rights.most_epsilon = open_data - 1;
  EXPECT_EQ(gate.decide(r).reason, Reason::kEpsilonAbove);
}

TEST(ReleaseGate, RefusesUnknownGenerationClassesAndPurposes) {
  const Service service;
  const Gate gate(service.envelope, evidence());
  EXPECT_EQ(gate.decide(request("generate")).reason, Reason::kUnknownGenerationClass);
  EXPECT_EQ(gate.decide(request("recall", "research")).reason, Reason::kPurposeNotGranted);
  EXPECT_TRUE(gate.decide(request("recall", "audit")).allowed());
  EXPECT_EQ(gate.decide(request("recall", "any")).reason, Reason::kPurposeNotGranted);
  EXPECT_EQ(gate.decide(request("")).reason, Reason::kUnknownGenerationClass);
}

TEST(ReleaseGate, GoesByTheClockAtEveryDecision) {
  const Service service;
  std::uint64_t now = kToday - 1;
  Gate::Evidence e = evidence();
  e.clock = [&now] { return now; };
  const Gate gate(service.envelope, e);
  EXPECT_EQ(gate.decide(request("embed")).reason, Reason::kNotYetValid);
  now = kToday;
  EXPECT_TRUE(gate.decide(request("embed")).allowed());
  now = kToday + 999;
  EXPECT_TRUE(gate.decide(request("embed")).allowed());
  now = kToday + 1000;
  EXPECT_EQ(gate.decide(request("embed")).reason, Reason::kStale);
  EXPECT_EQ(gate.standing().reason, Reason::kStale);
  now = ~std::uint64_t{0};
  EXPECT_EQ(gate.decide(request("embed")).reason, Reason::kStale);
}

TEST(ReleaseGate, FailsClosedOnManifestsItCannotTrust) {
  const Service service;
  Gate::Evidence e = evidence();
  e.key = key(8).public_key();
  EXPECT_EQ(reason(service.envelope, e), Reason::kUnknownKey);
  EXPECT_EQ(reason("", evidence()), Reason::kMalformedManifest);
  std::string bent = service.envelope;
  bent[40] = bent[40] == 'A' ? 'B' : 'A';
  EXPECT_EQ(reason(bent, evidence()), Reason::kBadSignature);
  const Gate gate(bent, evidence());
  EXPECT_FALSE(gate.manifest());
}

TEST(ReleaseGate, FailsClosedOnAnotherModel) {
  const Service service;
  Gate::Evidence e = evidence();
  e.model[0].sha256[5] ^= 1;
  EXPECT_EQ(reason(service.envelope, e), Reason::kWrongModel);
  e = evidence();
  e.model.clear();
  EXPECT_EQ(reason(service.envelope, e), Reason::kWrongModel);
  e = evidence();
  e.model[0].name = "other.safetensors";
  EXPECT_EQ(reason(service.envelope, e), Reason::kWrongModel);
  e = evidence();
  e.model.push_back({"adapter.safetensors", {}});
  EXPECT_EQ(reason(service.envelope, e), Reason::kWrongModel);
}

TEST(ReleaseGate, FailsClosedOnAWithdrawalAfterTheRelease) {
  Service service;
  service.corpus.withdraw(5, "clinical");
  EXPECT_TRUE(Gate(service.envelope, evidence()).decide(request("embed")).allowed())
      << "without the ledger the manifest is believed until it is stale";
  const Gate gate(service.envelope, service.with_ledger());
  for (const char* kind : {"answer", "embed"})
    EXPECT_EQ(gate.decide(request(kind)).reason, Reason::kWithdrawn);
  EXPECT_EQ(gate.decide(request("embed")).position, service.corpus.ledger.state().size());
}

TEST(ReleaseGate, AWithdrawalOfWhatTheModelNeverUsedIsNothingToIt) {
  Service service;
  service.corpus.ledger.admit(contributions(20, 21, "public"));
  service.corpus.withdraw(20, "public");
  EXPECT_EQ(reason(service.envelope, service.with_ledger()), Reason::kAllowed);
  // Used by later epochs of the run, which are not in the released model.
  service.corpus.ledger.admit(contributions(21, 22, "public"));
  service.corpus.ledger.reserve_epoch("run-1", 2, kToday, epoch());
  service.corpus.withdraw(21, "public");
  EXPECT_EQ(reason(service.envelope, service.with_ledger()), Reason::kAllowed);
  service.corpus.withdraw(0, "public");
  EXPECT_EQ(reason(service.envelope, service.with_ledger()), Reason::kWithdrawn);
}

TEST(ReleaseGate, WhatWasWithdrawnBeforeIsServedOnlyIfTheReleaseSaysSo) {
  const Service service(true);
  EXPECT_EQ(reason(service.envelope, service.with_ledger(), request("answer")),
            Reason::kDrawsOnWithdrawn);
  EXPECT_EQ(reason(service.envelope, service.with_ledger(), request("embed")), Reason::kAllowed);
  ReleaseTerms terms = release_terms();
  terms.generation["answer"].serves_withdrawn = true;
  const Service stated(true, terms);
  EXPECT_EQ(reason(stated.envelope, stated.with_ledger(), request("answer")), Reason::kAllowed);
}

TEST(ReleaseGate, AfterRetentionAnUnknownWithdrawalDenies) {
  Folder folder;
  auto ledger = ledger::Ledger::create(folder / "l.db", header(), bytes_of("p"), ledger_key());
  ledger.admit(contributions(0, 2, "public", kToday + 10));
  ledger.reserve_epoch("run-1", 0, kToday, {terms("public")});
  ReleaseTerms t;
  t.issued = kToday;
  const std::string envelope =
      sign(draft(facts(), t, LedgerAt{folder / "l.db", ledger_key().public_key(), ledger.note()}),
           release_key());
  ledger.release("run-1", hash_of(envelope));
  ASSERT_TRUE(ledger.summarise(kToday + 5000));
  Gate::Evidence e = evidence();
  e.ledger = folder / "l.db";
  EXPECT_EQ(reason(envelope, e, request("predict")), Reason::kAllowed);
  const ledger::Withdrawal w[] = {
      withdrawal(hash_of(contribution(1, "public", kToday + 10)), steward_key())};
  ASSERT_EQ(ledger.withdraw(w), 1U);
  EXPECT_EQ(reason(envelope, e, request("predict")), Reason::kWithdrawn);
}

TEST(ReleaseGate, FailsClosedOnALedgerThatDoesNotBearItOut) {
  Service service;
  const Manifest m = draft(facts(), release_terms(), service.corpus.at());

  // Signed, and recorded nowhere.
  Manifest unrecorded = m;
  unrecorded.max_age = 7;
  EXPECT_EQ(reason(sign(unrecorded, release_key()), service.with_ledger()), Reason::kNotRecorded);

  // Recorded under one of its names only.
  Manifest half = m;
  half.runs = {"run-1", "run-2"};
  half.postures =
      draft({{"run-1", "run-2"}, model(), layout(), 1, 1e-5}, release_terms(), service.corpus.at())
          .postures;
  const std::string signed_half = sign(half, release_key());
  service.corpus.ledger.release("run-1", hash_of(signed_half));
  EXPECT_EQ(reason(signed_half, service.with_ledger()), Reason::kNotRecorded);
  service.corpus.ledger.release("run-2", hash_of(signed_half));
  EXPECT_EQ(reason(signed_half, service.with_ledger()), Reason::kAllowed);

  // Recorded, and says less than the ledger.
  for (const auto& change : std::vector<std::function<void(Manifest&)>>{
           [](Manifest& lie) { lie.postures[0].spend -= 1; },
           [](Manifest& lie) { lie.postures[0].clip -= 1; },
           [](Manifest& lie) { lie.postures[0].contributions -= 1; },
           [](Manifest& lie) { lie.ledger->delta += 1; },
           [](Manifest& lie) { lie.ledger->accountant = "rdp"; },
           [](Manifest& lie) { lie.runs = {"run-2"}; }}) {
    Manifest lie = m;
    change(lie);
    EXPECT_EQ(reason(service.corpus.release(lie), service.with_ledger()),
              Reason::kLedgerUnverified);
  }

  // Another ledger, another key, none.
  Corpus other;
  Gate::Evidence e = evidence();
  e.ledger = other.folder / "ledger.db";
  EXPECT_EQ(reason(service.corpus.release(m), e), Reason::kLedgerUnverified)
      << "it is as long as before the release: a rollback";
  e = service.with_ledger();
  e.ledger_key = key(8).public_key();
  EXPECT_EQ(reason(service.envelope, e), Reason::kLedgerUnverified);
  e = evidence();
  e.ledger_key = key(8).public_key();
  EXPECT_EQ(reason(service.envelope, e), Reason::kLedgerUnverified);
  e = evidence();
  e.ledger = service.corpus.folder / "nothing.db";
  try {
    EXPECT_EQ(reason(service.envelope, e), Reason::kLedgerUnverified);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIoError);
  }
  std::filesystem::resize_file(service.ledger(), 100);
  EXPECT_EQ(reason(service.envelope, service.with_ledger()), Reason::kLedgerUnverified);
}

TEST(ReleaseGate, FailsClosedOnANewerCheckpointWithoutItsLedger) {
  Service service;
  Gate::Evidence e = evidence();
  const std::string known = Gate(service.envelope, evidence()).manifest()->ledger->note;
  e.checkpoint = known;
  EXPECT_EQ(reason(service.envelope, e), Reason::kAllowed);
  e.checkpoint = service.corpus.ledger.note();
  EXPECT_EQ(reason(service.envelope, e), Reason::kLedgerUnverified);
  e.ledger = service.ledger();
  EXPECT_EQ(reason(service.envelope, e), Reason::kAllowed);
  // The ledger that is shown was rolled back behind the note.
  std::filesystem::copy_file(service.ledger(), service.corpus.folder / "old.db");
  service.corpus.withdraw(5, "clinical");
  e.ledger = service.corpus.folder / "old.db";
  EXPECT_EQ(reason(service.envelope, e), Reason::kAllowed);
  e.checkpoint = service.corpus.ledger.note();
  EXPECT_EQ(reason(service.envelope, e), Reason::kLedgerUnverified);
  for (const char* bad : {"", "x\n", "test.example/corpus\n3\nAAAA\n\n"}) {
    e = evidence();
    e.checkpoint = bad;
    EXPECT_EQ(reason(service.envelope, e), Reason::kLedgerUnverified);
    e.ledger = service.ledger();
    EXPECT_EQ(reason(service.envelope, e), Reason::kLedgerUnverified);
  }
}

TEST(ReleaseGate, AReleaseWithoutLedgerIsUnattestedAndTakesNoLedger) {
  ReleaseTerms t;
  t.issued = kToday;
  const std::string envelope = sign(draft(facts(), t, std::nullopt), release_key());
  Request r = request("predict");
  EXPECT_EQ(reason(envelope, evidence(), r), Reason::kAllowed);
  r.rights.classes = {"public"};
  EXPECT_EQ(reason(envelope, evidence(), r), Reason::kClassNotPermitted);
  r.rights.classes = {std::string(kUnattested)};
  EXPECT_EQ(reason(envelope, evidence(), r), Reason::kAllowed);
  r.rights.most_epsilon = 1'249'999;
  EXPECT_EQ(reason(envelope, evidence(), r), Reason::kEpsilonAbove);
  Corpus corpus;
  Gate::Evidence e = evidence();
  e.ledger = corpus.folder / "ledger.db";
  EXPECT_EQ(reason(envelope, e), Reason::kLedgerUnverified);
}

TEST(ReleaseGate, ManyThreadsGetTheSameAnswers) {
  const Service service;
  const Gate gate(service.envelope, evidence());
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      Request r = request(i % 2 == 0 ? "answer" : "embed");
      r.rights.classes = {"public"};
      for (int j = 0; j < 1000; ++j) wrong += gate.decide(r).allowed() != (i % 2 == 1);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ReleaseRequest, IsReadStrictly) {
  const Request r = parse_request(
      R"({"generation_class": "a", "purpose": "p", "rights": {"classes": ["z", "b"], "most_epsilon": 0.1234567}})");
  EXPECT_EQ(r.generation_class, "a");
  EXPECT_EQ(r.rights.classes, (std::vector<std::string>{"b", "z"}));
  EXPECT_EQ(r.rights.most_epsilon, 123456U) << "rounded down";
  EXPECT_FALSE(
      parse_request(R"({"generation_class":"a","purpose":"p","rights":{}})").rights.classes);
  for (const char* bad :
       {"", "[]", "{}", R"({"generation_class":"a","purpose":"p"})",
        R"({"generation_class":"","purpose":"p","rights":{}})",
        R"({"generation_class":"a","purpose":1,"rights":{}})",
        R"({"generation_class":"a","purpose":"p","rights":[]})",
        R"({"generation_class":"a","purpose":"p","rights":{"clases":[]}})",
        R"({"generation_class":"a","purpose":"p","rights":{},"more":1})",
        R"({"generation_class":"a","purpose":"p","rights":{"classes":"b"}})",
        R"({"generation_class":"a","purpose":"p","rights":{"most_epsilon":-1}})",
        R"({"generation_class":"a","purpose":"p","rights":{"most_epsilon":1e300}})",
        R"({"generation_class":"a","purpose":"p","rights":{"most_epsilon":"1"}})",
        R"({"generation_class":"a","purpose":"p","rights":{"classes":[]},"rights":{}})",
        R"({"generation_class":"a","purpose":"p","rights":{"classes":["a"],"classes":["b"]}})"}) {
    try {
      static_cast<void>(parse_request(bad));
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidInput) << bad;
    }
  }
  EXPECT_THROW(parse_request(std::string(2 << 20, ' ')), Error);
  EXPECT_THROW(parse_request(std::string(100'000, '[')), Error);
}

// A withdrawn contribution is traced to the releases, and its bundle names them.
TEST(ReleaseGate, AContributorsBundleListsTheReleasesItTouched) {
  Service service;
  const std::string other = service.corpus.release([&] {
    RunFacts f = facts();
    f.runs = {"run-2"};
    return draft(f, release_terms(), service.corpus.at());
  }());
  service.corpus.withdraw(5, "clinical");
  service.corpus.withdraw(0, "public");
  const auto releases = [&](std::uint32_t n, const std::string& data_class) {
    const auto verdict =
        ledger::verify_bundle(ledger::withdrawal_bundle(service.ledger(), ledger_key(),
                                                        hash_of(contribution(n, data_class))),
                              ledger_key().public_key());
    EXPECT_TRUE(verdict.ok) << verdict.problem;
    std::vector<Digest> out;
    for (const ledger::Release& r : verdict.affected) out.push_back(r.manifest);
    return out;
  };
  const Digest first = hash_of(service.envelope), second = hash_of(other);
  EXPECT_EQ(releases(5, "clinical"), std::vector{first}) << "run-2 used public ones only";
  EXPECT_EQ(releases(0, "public"), (std::vector{first, second}));
}

}  // namespace
}  // namespace discreet::release
