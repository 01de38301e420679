#include "discreet/ledger/ledger.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "discreet/accounting/pld.h"
#include "discreet/base/error_testing.h"
#include "discreet/ledger/ledger_testing.h"
#include "discreet/ledger/note.h"
#include "discreet/ledger/verify.h"

namespace discreet::ledger {
namespace {

using namespace testing;

std::vector<Entry> entries(const std::filesystem::path& path) {
  Store store(path, Store::Mode::kRead);
  Store::Leaves leaves(store, 0);
  Store::Leaf leaf;
  std::vector<Entry> out;
  while (leaves.next(leaf))
    if (!leaf.summarised) out.push_back(decode_entry(leaf.content));
  return out;
}

TEST(Ledger, HeaderFixesTheContract) {
  Folder folder;
  const auto path = folder / "ledger.db";
  { Ledger::create(path, header("rdp"), bytes_of("the policy"), ledger_key()); }
  const Verification found = verify(path);
  ASSERT_TRUE(found.ok) << found.problem;
  ASSERT_TRUE(found.header);
  EXPECT_EQ(found.header->accountant, "rdp");
  EXPECT_EQ(found.header->multiplier_floor, 500'000'000u);
  EXPECT_EQ(found.header->depth_profile_schema, 1u);
  EXPECT_EQ(found.header->key, raw(ledger_key()));
  EXPECT_EQ(found.header->policy, sha256(bytes_of("the policy")));
  EXPECT_EQ(found.size, 2u);
  EXPECT_EQ(code_of([&] { Ledger::create(path, header(), bytes_of("p"), ledger_key()); }),
            ErrorCode::kInvalidInput);
  EXPECT_TRUE(verify(path).ok);
}

TEST(Ledger, RefusesAHeaderThatFixesNothing) {
  Folder folder;
  for (const auto& spoil :
       {+[](Header& h) { h.accountant = "guess"; }, +[](Header& h) { h.delta = 0; },
        +[](Header& h) { h.origin = "two words"; },
        +[](Header& h) {
          h.stewards = {raw(key(3)), raw(key(3))};
        }}) {
    Header bad = header();
    spoil(bad);
    EXPECT_THROW(Ledger::create(folder / "bad.db", bad, {}, ledger_key()), Error);
    EXPECT_FALSE(std::filesystem::exists(folder / "bad.db"));
  }
}

// Checks the spends of 1000 steps in ten epochs; with plans, the first epoch is charged all steps.
void expect_composed(std::uint64_t schema) {
  Folder folder;
  const auto path = folder / "ledger.db";
  {
    Ledger ledger = Ledger::create(path, header("pld", schema), bytes_of("policy"), ledger_key());
    ledger.admit(contributions(0, 5), {{{"BELOW_FLOOR", 2}, {"EXPIRED", 1}}});
    for (std::uint64_t epoch = 0; epoch < 10; ++epoch)
      EXPECT_TRUE(ledger.reserve_epoch("run-a", epoch, kToday, {terms()}));
  }
  // The independent account: 1000 steps at once.
  accounting::PldAccountant once(accounting::Adjacency::kZeroOut);
  once.add(accounting::Event(accounting::Gaussian{3.0}, accounting::Poisson{0.01},
                             accounting::Adjacency::kZeroOut),
           1000);
  const double composed = once.epsilon(1e-5).value.upper;
  std::vector<std::uint64_t> first(5), last(5);
  int uses = 0;
  for (const Entry& entry : entries(path))
    if (const auto* use = std::get_if<Use>(&entry)) {
      last[use->contribution] = use->spend;
      if (first[use->contribution] == 0) first[use->contribution] = use->spend;
      ++uses;
    }
  EXPECT_EQ(uses, 50);
  for (const std::uint64_t spend : last) {
    EXPECT_GE(static_cast<double>(spend) / kMicro, composed);
    EXPECT_NEAR(static_cast<double>(spend) / kMicro, composed, 3e-6);
  }
  const Verification found = verify(path);
  ASSERT_TRUE(found.ok) << found.problem;
  EXPECT_EQ(found.counts.refusals, 3u);
  EXPECT_EQ(found.counts.epochs, 10u);
  EXPECT_EQ(found.attestations, 5u);
  EXPECT_EQ(found.histories, schema == 1 ? 11u : 2u);
  EXPECT_EQ(first == last, schema != 1);
  ASSERT_EQ(found.classes.size(), 1u);
  EXPECT_EQ(found.classes[0].contributions, 5u);
}

TEST(Ledger, AnEpochHasOneUseForEachAdmittedContributionAndItsComposedSpend) {
  expect_composed(1);
  expect_composed(2);
}

// The recorded spend does not depend on when a run was stopped or whether it was continued: from
// its first epoch on it is that of its plan. Composed here by another path, over both runs.
TEST(Ledger, ARunThatStopsAtAnyEpochHasSpentItsPlan) {
  accounting::PldAccountant both(accounting::Adjacency::kZeroOut);
  for (const double sigma : {3.0, 2.0})
    both.add(accounting::Event(accounting::Gaussian{sigma}, accounting::Poisson{0.01},
                               accounting::Adjacency::kZeroOut),
             1000);
  const double planned = both.epsilon(1e-5).value.upper;
  for (const std::uint64_t epochs : {1, 2, 10}) {
    Folder folder;
    Ledger ledger = Ledger::create(folder / "l.db", header(), bytes_of("policy"), ledger_key());
    ledger.admit(contributions(0, 2));
    ledger.reserve_epoch("first", 0, kToday, {terms()});
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch)
      ledger.reserve_epoch("second", epoch, kToday, {terms("public", 2'000'000'000)});
    ledger.reserve_epoch("first", 1, kToday, {terms()});
    // Admitted between two epochs: charged what it had missed of the plan too.
    ledger.admit(contributions(2, 3));
    ledger.reserve_epoch("first", 2, kToday, {terms()});
    if (epochs < 10)
      ledger.reserve_epoch("second", epochs, kToday, {terms("public", 2'000'000'000)});
    const auto& all = ledger.state().contributions();
    for (std::size_t i = 0; i < (epochs < 10 ? 3u : 2u); ++i) {
      EXPECT_GE(static_cast<double>(ledger.state().spend_of(all[i])) / kMicro, planned) << i;
      EXPECT_NEAR(static_cast<double>(ledger.state().spend_of(all[i])) / kMicro, planned, 3e-6);
    }
    const Verification found = verify(folder / "l.db");
    EXPECT_TRUE(found.ok) << found.problem;
  }
}

TEST(Ledger, AnEpochThatTheRunDidNotPlanIsRefused) {
  Folder folder;
  Ledger ledger = Ledger::create(folder / "l.db", header(), bytes_of("policy"), ledger_key());
  ledger.admit(contributions(0, 2));
  Terms small = terms();
  small.planned_steps = 150;
  ledger.reserve_epoch("run", 0, kToday, {small});
  EXPECT_THROW(ledger.reserve_epoch("run", 1, kToday, {small}), Error);  // 200 of 150
  small.planned_steps = 1000;
  EXPECT_THROW(ledger.reserve_epoch("run", 1, kToday, {small}), Error);  // another plan
  small.planned_steps = 150;
  small.steps = 50;
  small.rate /= 2;
  EXPECT_THROW(ledger.reserve_epoch("run", 1, kToday, {small}), Error);
  small.rate *= 2;
  EXPECT_TRUE(ledger.reserve_epoch("run", 1, kToday, {small}));
  small.planned_steps = 0;
  EXPECT_THROW(ledger.reserve_epoch("other", 0, kToday, {small}), Error);
  EXPECT_TRUE(verify(folder / "l.db").ok);
}

TEST(Ledger, WholeEpochsArePlannedAsSuch) {
  Folder folder;
  Ledger ledger = Ledger::create(folder / "l.db", header(), bytes_of("policy"), ledger_key());
  ledger.admit(contributions(0, 2));
  Terms bins = terms();
  bins.sampler = 4;
  bins.rate = 0;
  bins.batch = bins.steps = 20;
  bins.planned_steps = 50;
  EXPECT_THROW(ledger.reserve_epoch("run", 0, kToday, {bins}), Error);
  bins.planned_steps = 60;
  EXPECT_TRUE(ledger.reserve_epoch("run", 0, kToday, {bins}));
  accounting::PldAccountant three(accounting::Adjacency::kZeroOut);
  three.add(accounting::Event(accounting::Gaussian{3.0}, accounting::BallsAndBins{20},
                              accounting::Adjacency::kZeroOut),
            3);
  EXPECT_NEAR(static_cast<double>(ledger.state().contributions()[0].recorded) / kMicro,
              three.epsilon(1e-5).value.upper, 1e-5);
  EXPECT_TRUE(verify(folder / "l.db").ok);
}

TEST(Ledger, AStrictBoundIsMetByClippingFurtherNotByMoreNoise) {
  // z = 2, k = 4: every use needs multiplier 4, whatever the noise is.
  const Bound strict{1'000'000'000, Promise::kWorstCase, 2'000'000'000, 4, 0};
  const auto weak = event_of(terms("public", 1'000'000'000), strict);
  EXPECT_NEAR(*accounting::gaussian_noise_multiplier(weak.event.mechanism()), 4, 1e-12);
  EXPECT_LE(*accounting::gaussian_noise_multiplier(weak.event.mechanism()), 4);
  const auto strong = event_of(terms("public", 7'000'000'000), strict);
  EXPECT_NEAR(*accounting::gaussian_noise_multiplier(strong.event.mechanism()), 7, 1e-12);
  EXPECT_LE(*accounting::gaussian_noise_multiplier(strong.event.mechanism()), 7);
  EXPECT_EQ(strong.count, 100u);
}

TEST(Ledger, TermsThatFitNoSamplerOrFamilyAreRefusedAndNothingIsWritten) {
  Folder folder;
  Ledger ledger = Ledger::create(folder / "l.db", header(), bytes_of("policy"), ledger_key());
  ledger.admit(contributions(0, 2));
  const std::string before = ledger.note();
  for (const auto& spoil :
       {+[](Terms& t) { t.steps = 0; }, +[](Terms& t) { t.deviation = 0; },
        +[](Terms& t) { t.rate = 2'000'000'000'000; }, +[](Terms& t) { t.batch = 7; },
        +[](Terms& t) { t.sampler = 9; }, +[](Terms& t) { t.family = Family::kLaplace; },
        +[](Terms& t) { t.adjacency = accounting::Adjacency::kAddRemove; },
        +[](Terms& t) { t.grid = 5; }, +[](Terms& t) { t.profile = from_hex("ff"); }}) {
    Terms bad = terms();
    spoil(bad);
    EXPECT_THROW(ledger.reserve_epoch("run", 0, kToday, {bad}), Error);
    EXPECT_EQ(ledger.note(), before);
    EXPECT_EQ(ledger.state().size(), read_unverified(before).size);
  }
  EXPECT_TRUE(ledger.reserve_epoch("run", 0, kToday, {terms()}));
}

TEST(Ledger, EpochsComeOneAfterAnotherAndOnce) {
  Folder folder;
  const auto path = folder / "l.db";
  Ledger ledger = Ledger::create(path, header(), bytes_of("policy"), ledger_key());
  ledger.admit(contributions(0, 3));
  EXPECT_EQ(code_of([&] { ledger.reserve_epoch("run", 1, kToday, {terms()}); }),
            ErrorCode::kInvalidInput);
  EXPECT_TRUE(ledger.reserve_epoch("run", 0, kToday, {terms()}));
  EXPECT_FALSE(ledger.reserve_epoch("run", 0, kToday, {terms()}));
  EXPECT_TRUE(ledger.reserve_epoch("other", 0, kToday, {terms()}));
  EXPECT_THROW(ledger.reserve_epoch("run", 1, kToday - 1, {terms()}), Error);
  EXPECT_EQ(verify(path).counts.uses, 6u);
}

TEST(Ledger, AWithdrawalAppendsAndStopsUseAndAdmission) {
  Folder folder;
  const auto path = folder / "l.db";
  const auto who = contributions(0, 3);
  {
    Ledger ledger = Ledger::create(path, header(), bytes_of("policy"), ledger_key());
    ledger.admit(who);
    ledger.reserve_epoch("run", 0, kToday, {terms()});
    const std::size_t before = entries(path).size();
    EXPECT_EQ(ledger.withdraw(std::vector{withdrawal(hash_of(who[1]), contributor_key())}), 1u);
    EXPECT_EQ(entries(path).size(), before + 2);  // itself, and the note before it
    // The same event again is consumed once; one by an unknown key is rejected.
    EXPECT_EQ(ledger.withdraw(std::vector{withdrawal(hash_of(who[1]), steward_key())}), 0u);
    EXPECT_THROW(ledger.withdraw(std::vector{withdrawal(hash_of(who[2]), key(9))}), Error);
    EXPECT_THROW(ledger.admit(std::vector{who[1]}), Error);
    const auto later = contribution(77);
    EXPECT_THROW(ledger.withdraw(std::vector{withdrawal(hash_of(later), contributor_key())}),
                 Error);
    EXPECT_EQ(ledger.withdraw(std::vector{withdrawal(hash_of(later), steward_key())}), 1u);
    EXPECT_THROW(ledger.admit(std::vector{later}), Error);
    ledger.reserve_epoch("run", 1, kToday, {terms()});
  }
  std::vector<int> uses(3);
  for (const Entry& entry : entries(path))
    if (const auto* use = std::get_if<Use>(&entry)) ++uses[use->contribution];
  EXPECT_EQ(uses, (std::vector<int>{2, 1, 2}));
  const Verification found = verify(path);
  EXPECT_TRUE(found.ok) << found.problem;
  EXPECT_EQ(found.counts.withdrawals, 2u);
}

TEST(Ledger, LeavesOutWhatIsNotValidYet) {
  Folder folder;
  const auto path = folder / "l.db";
  admission::Descriptor d = admission::decode_descriptor(contribution(1).descriptor);
  d.not_before = kToday + 1;
  const Bytes bytes = admission::encode(d);
  {
    Ledger ledger = Ledger::create(path, header(), bytes_of("policy"), ledger_key());
    ledger.admit(std::vector{
        contribution(0), Ledger::Contribution{bytes, admission::attest(contributor_key(), bytes),
                                              contributor_key().public_key()}});
    ledger.reserve_epoch("run", 0, kToday, {terms()});
    EXPECT_EQ(verify(path).counts.uses, 1u) << verify(path).problem;
  }
  Ledger ledger = Ledger::open(path, ledger_key());
  ledger.reserve_epoch("run", 1, kToday + 1, {terms()});
  EXPECT_EQ(verify(path).counts.uses, 3u) << verify(path).problem;
}

TEST(Ledger, TellsWhichWithdrawalsItWouldNotTake) {
  Folder folder;
  const auto who = contributions(0, 2);
  Ledger ledger = Ledger::create(folder / "l.db", header(), bytes_of("policy"), ledger_key());
  ledger.admit(who);
  const Withdrawal genuine = withdrawal(hash_of(who[0]), contributor_key());
  Withdrawal forged = genuine, malformed = genuine;
  forged.time += 1;
  malformed.signature = {0x80};
  EXPECT_FALSE(ledger.objection(genuine));
  EXPECT_FALSE(ledger.objection(withdrawal(hash_of(contribution(9)), steward_key())));
  EXPECT_TRUE(ledger.objection(forged));
  EXPECT_TRUE(ledger.objection(malformed));
  EXPECT_TRUE(ledger.objection(withdrawal(hash_of(who[0]), key(9))));
  EXPECT_TRUE(ledger.objection(withdrawal(hash_of(contribution(9)), contributor_key())));
  EXPECT_EQ(ledger.withdraw(std::vector{genuine}), 1u);
}

TEST(Ledger, AWithdrawalSignedForAnotherLedgerIsNotTaken) {
  Folder folder;
  const auto who = contributions(0, 1);
  Ledger ledger = Ledger::create(folder / "l.db", header(), bytes_of("policy"), ledger_key());
  ledger.admit(who);
  Withdrawal foreign = withdrawal(hash_of(who[0]), contributor_key());
  foreign.signature = admission::sign(
      contributor_key(),
      withdrawal_statement("another.example", foreign.descriptor, foreign.reason, foreign.time));
  EXPECT_THROW(ledger.withdraw(std::vector{foreign}), Error);
}

TEST(Ledger, RetentionDropsContentsKeepsHashesAndAppendsClassTotals) {
  Folder folder;
  const auto path = folder / "l.db";
  Digest root_before;
  std::uint64_t size_before = 0;
  Path proof;
  std::string note_before;
  const auto old_ones = contributions(0, 4, "sensitive", kToday + 10);
  {
    Ledger ledger = Ledger::create(path, header(), bytes_of("policy"), ledger_key());
    ledger.admit(old_ones);
    ledger.admit(contributions(10, 13));
    ledger.reserve_epoch("run", 0, kToday, {terms("sensitive"), terms("public")});
    ledger.withdraw(std::vector{withdrawal(hash_of(old_ones[0]), contributor_key())});
    ledger.reserve_epoch("run", 1, kToday + 20, {terms("sensitive"), terms("public")});
    note_before = ledger.note();
    size_before = ledger.state().size();
    EXPECT_FALSE(ledger.summarise(kToday + 1009));
    {
      Store store(path, Store::Mode::kRead);
      root_before = range_hash(store)(0, size_before);
      proof = inclusion_proof(3, size_before, range_hash(store));
    }
    EXPECT_TRUE(ledger.summarise(kToday + 1010));
    EXPECT_FALSE(ledger.summarise(kToday + 1010));
    EXPECT_TRUE(ledger.reserve_epoch("run", 2, kToday + 20, {terms("public")}));
    // Numbering continues.
    ledger.admit(contributions(20, 21));
    EXPECT_EQ(ledger.state().contributions().back().number, 7u);
    EXPECT_THROW(ledger.withdraw(std::vector{withdrawal(hash_of(old_ones[1]), contributor_key())}),
                 Error);
    EXPECT_EQ(ledger.withdraw(std::vector{withdrawal(hash_of(old_ones[1]), steward_key())}), 1u);
  }
  VerifyOptions with_old;
  with_old.checkpoint = note_before;
  const Verification found = verify(path, with_old);
  ASSERT_TRUE(found.ok) << found.problem;
  EXPECT_EQ(found.counts.summarised, 8u);  // four admissions and four uses of epoch 0
  ASSERT_EQ(found.summarised.size(), 1u);
  EXPECT_EQ(found.summarised[0].contributions, 4u);
  EXPECT_EQ(found.summarised[0].uses, 4u);
  EXPECT_GT(found.summarised[0].most_spent, 0u);
  // A proof handed out before still holds, and the tree is the same.
  Store store(path, Store::Mode::kRead);
  EXPECT_EQ(range_hash(store)(0, size_before), root_before);
  Store::Leaves leaves(store, 3);
  Store::Leaf leaf;
  ASSERT_TRUE(leaves.next(leaf));
  EXPECT_TRUE(leaf.summarised);
  EXPECT_TRUE(verify_inclusion(leaf.hash, 3, size_before, proof, root_before));
  // Neither descriptor nor nonce is left in any page of the file.
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const Bytes& gone = old_ones[2].descriptor;
  EXPECT_EQ(bytes.find(std::string(gone.begin(), gone.end())), std::string::npos);
}

TEST(Ledger, AnOldCheckpointShowsRollbackAndForks) {
  Folder folder;
  const auto path = folder / "l.db";
  std::string early, late;
  {
    Ledger ledger = Ledger::create(path, header(), bytes_of("policy"), ledger_key());
    ledger.admit(contributions(0, 3));
    early = ledger.note();
  }
  std::filesystem::copy_file(path, folder / "copy.db");
  {
    Ledger ledger = Ledger::open(path, ledger_key());
    ledger.reserve_epoch("run", 0, kToday, {terms()});
    late = ledger.note();
  }
  VerifyOptions with;
  with.checkpoint = early;
  EXPECT_TRUE(verify(path, with).ok);
  with.checkpoint = late;
  EXPECT_TRUE(verify(path, with).ok);
  EXPECT_EQ(verify(folder / "copy.db", with).kind, "rollback");
  EXPECT_TRUE(verify(folder / "copy.db").ok);
  EXPECT_THROW(Ledger::open(folder / "copy.db", ledger_key(), late), Error);
  {  // the copy diverges
    Ledger fork = Ledger::open(folder / "copy.db", ledger_key(), early);
    fork.reserve_epoch("run", 0, kToday, {terms("public", 2'000'000'000)});
    fork.reserve_epoch("another", 0, kToday, {terms()});
  }
  EXPECT_EQ(verify(folder / "copy.db", with).kind, "fork");
  with.checkpoint = sign_note(read_unverified(late), key(8));
  EXPECT_EQ(verify(path, with).kind, "signature");
  VerifyOptions stranger;
  stranger.key = key(8).public_key();
  EXPECT_EQ(verify(path, stranger).kind, "signature");
  EXPECT_THROW(Ledger::open(path, key(8)), Error);
}

TEST(Ledger, AdmissionsSayWhatTheirDescriptorsSay) {
  Folder folder;
  const auto path = folder / "l.db";
  const auto who = contributions(0, 1, "clinical");
  {
    Ledger ledger = Ledger::create(path, header(), bytes_of("policy"), ledger_key());
    ledger.admit(who);
    Ledger::Contribution forged = contribution(5);
    forged.attestation = who[0].attestation;
    EXPECT_THROW(ledger.admit(std::vector{forged}), Error);
    EXPECT_THROW(ledger.admit(who), Error);  // once
  }
  const auto found = entries(path);
  const auto& leaf = std::get<Admission>(found.at(3));
  EXPECT_EQ(leaf.descriptor, hash_of(who[0]));
  EXPECT_EQ(leaf.admissibility_class, "clinical");
  EXPECT_EQ(leaf.contributor, raw(contributor_key()));
  EXPECT_EQ(leaf.clip, 1'000'000'000u);
  EXPECT_EQ(leaf.multiplier, 1'000'000'000u);
  EXPECT_EQ(leaf.uses, 4u);
}

TEST(Ledger, AnAdapterStandsInPlaceOfADepthBand) {
  Folder folder;
  const auto path = folder / "l.db";
  auto d = admission::decode_descriptor(contribution(0).descriptor);
  d.adapter = "lora-7";
  const Bytes bytes = admission::encode(d);
  {
    Ledger ledger = Ledger::create(path, header(), bytes_of("policy"), ledger_key());
    ledger.admit(std::vector<Ledger::Contribution>{
        {bytes, admission::attest(contributor_key(), bytes), contributor_key().public_key()}});
    Terms t = terms();
    t.profile = cbor::encode(cbor::map({{"adapter", "lora-7"}}));
    ledger.reserve_epoch("run", 0, kToday, {t});
  }
  const auto found = entries(path);
  EXPECT_EQ(std::get<Admission>(found.at(3)).adapter, "lora-7");
  EXPECT_EQ(describe(found.at(5)).at("depth_profile").at("adapter").as_text(), "lora-7");
  EXPECT_TRUE(verify(path).ok);
}

TEST(Ledger, AnEpochCoversAllThatAreNeitherWithdrawnNorEnded) {
  Folder folder;
  const auto path = folder / "l.db";
  {
    Ledger ledger = Ledger::create(path, header(), bytes_of("policy"), ledger_key());
    ledger.admit(contributions(0, 2, "public", kToday + 10));
    ledger.admit(contributions(2, 4));
    ledger.admit(contributions(4, 6, "other"));
    ledger.reserve_epoch("run", 0, kToday + 9, {terms()});
    ledger.reserve_epoch("run", 1, kToday + 10, {terms()});  // the end is exclusive
  }
  std::vector<std::uint64_t> used;
  for (const Entry& entry : entries(path))
    if (const auto* use = std::get_if<Use>(&entry)) used.push_back(use->contribution);
  EXPECT_EQ(used, (std::vector<std::uint64_t>{0, 1, 2, 3, 2, 3}));
  EXPECT_TRUE(verify(path).ok);
}

TEST(Ledger, HasOneWriterAtATime) {
  Folder folder;
  Ledger ledger = Ledger::create(folder / "l.db", header(), bytes_of("policy"), ledger_key());
  EXPECT_EQ(code_of([&] { Ledger::open(folder / "l.db", ledger_key(), {}, 0); }),
            ErrorCode::kIoError);
  ledger.admit(contributions(0, 1));
  EXPECT_TRUE(verify(folder / "l.db").ok);
}

TEST(Ledger, WhoLetsGoFindsWhatOthersWroteAndRefusesAnotherHistory) {
  Folder folder;
  const auto path = folder / "l.db";
  Ledger ledger = Ledger::create(path, header(), bytes_of("policy"), ledger_key());
  ledger.admit(contributions(0, 2));
  ledger.let_go();
  std::filesystem::copy(path, folder / "old.db");
  Ledger::open(path, ledger_key(), {}, 0)
      .withdraw(std::vector{withdrawal(hash_of(contribution(0)), contributor_key())});
  ledger.reserve_epoch("run", 0, kToday, {terms()});
  EXPECT_EQ(ledger.state().contributions()[0].uses, 0u);
  EXPECT_EQ(ledger.state().contributions()[1].uses, 1u);
  ledger.let_go();
  std::filesystem::copy(folder / "old.db", path, std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(code_of([&] { ledger.reserve_epoch("run", 1, kToday, {terms()}); }),
            ErrorCode::kMalformed);
}

TEST(Ledger, WhatWasAdmittedAndRefusedForAnEpochIsThereWithItOrNotAtAll) {
  Folder folder;
  Ledger ledger = Ledger::create(folder / "l.db", header(), bytes_of("policy"), ledger_key());
  const std::string before = ledger.note();
  Terms bad = terms();
  bad.steps = 0;
  EXPECT_THROW(
      ledger.reserve_epoch("run", 0, kToday, {bad}, contributions(0, 3), {{{"EXPIRED", 2}}}),
      Error);
  EXPECT_EQ(ledger.note(), before);
  EXPECT_TRUE(
      ledger.reserve_epoch("run", 0, kToday, {terms()}, contributions(0, 3), {{{"EXPIRED", 2}}}));
  EXPECT_FALSE(
      ledger.reserve_epoch("run", 0, kToday, {terms()}, contributions(3, 5), {{{"EXPIRED", 2}}}));
  const Verification found = verify(folder / "l.db");
  ASSERT_TRUE(found.ok) << found.problem;
  EXPECT_EQ(found.counts.refusals, 2u);
  EXPECT_EQ(found.counts.admissions, 3u);
  EXPECT_EQ(found.counts.uses, 3u);
}

}  // namespace
}  // namespace discreet::ledger
