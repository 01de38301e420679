#include "discreet/ledger/withdrawal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "discreet/accounting/pld.h"
#include "discreet/base/error.h"
#include "discreet/base/sqlite.h"
#include "discreet/ledger/contribution_trace.h"
#include "discreet/ledger/ledger_testing.h"
#include "discreet/ledger/spend.h"
#include "discreet/ledger/verify.h"

namespace discreet::ledger {
namespace {

using namespace testing;

struct Withdrawn {
  Folder folder;
  std::filesystem::path path = folder / "l.db";
  std::vector<Ledger::Contribution> who = contributions(0, 3);
  explicit Withdrawn(std::uint64_t deviation = 3'000'000'000,
                     std::uint64_t schema = kSchemaVersion) {
    Ledger ledger = Ledger::create(path, header("pld", schema), bytes_of("policy"), ledger_key());
    ledger.admit(who);
    ledger.reserve_epoch("run", 0, kToday, {terms("public", deviation)});
    ledger.reserve_epoch("run", 1, kToday, {terms("public", deviation)});
    ledger.release("run", sha256(bytes_of("manifest")));
    ledger.withdraw(std::vector{withdrawal(hash_of(who[1]), contributor_key())});
    ledger.reserve_epoch("run", 2, kToday, {terms("public", deviation)});
    ledger.reserve_epoch("another", 0, kToday, {terms()});
    ledger.release("another", sha256(bytes_of("manifest 2")));
  }
};

TEST(Trace, NamesEveryRunEpochAndReleaseThatAContributionTouchedAndItsSpend) {
  const Withdrawn w;
  Store store(w.path, Store::Mode::kRead);
  const Trace gone = trace(store, hash_of(w.who[1]));
  ASSERT_EQ(gone.uses.size(), 2u);
  EXPECT_EQ(gone.uses[1].terms.run, "run");
  EXPECT_EQ(gone.uses[1].terms.epoch, 1u);
  EXPECT_TRUE(gone.withdrawal);
  EXPECT_EQ(gone.releases.size(), 1u);
  const Trace stays = trace(store, hash_of(w.who[2]));
  EXPECT_EQ(stays.uses.size(), 4u);
  EXPECT_EQ(stays.releases.size(), 2u);
  EXPECT_EQ(stays.spend, stays.uses[3].use.spend);
  EXPECT_FALSE(trace(store, Digest{}).admission);
}

// One Gaussian release of multiplier 1 at delta 1e-5: Phi(1/2 - e) - exp(e) Phi(-1/2 - e) = 1e-5.
constexpr std::uint64_t kPromised = 4'377'178;

void expect_stated(const Withdrawn& w, std::uint64_t expected) {
  Store store(w.path, Store::Mode::kRead);
  const Trace gone = trace(store, hash_of(w.who[1]));
  EXPECT_GE(gone.spend, expected);
  EXPECT_LE(gone.spend, expected + 2);
  const BundleVerdict bundle =
      verify_bundle(withdrawal_bundle(w.path, ledger_key(), hash_of(w.who[1])), {});
  EXPECT_EQ(bundle.spend, gone.spend);
  const Verification found = verify(w.path);
  ASSERT_TRUE(found.ok) << found.problem;
  const std::uint64_t stays = trace(store, hash_of(w.who[2])).spend;
  EXPECT_EQ(found.classes.at(0).most_spent, std::max(gone.spend, stays));
  Verification where;
  const Loaded loaded = load(store, {}, false, where);
  EXPECT_EQ(loaded.state.spend_of(*loaded.state.find(hash_of(w.who[1]))), gone.spend);
  EXPECT_EQ(loaded.state.spend_of(*loaded.state.find(hash_of(w.who[2]))), stays);
  EXPECT_EQ(loaded.state.summary(kToday + 2'000'000).classes.at(0).most_spent,
            std::max(gone.spend, stays));
}

TEST(Withdrawal, StatesThePlanOfItsRunsWhereverASpendIsStated) {
  // Two of ten epochs were taken by then; 1000 steps were planned.
  accounting::PldAccountant plan(accounting::Adjacency::kZeroOut);
  plan.add(accounting::Event(accounting::Gaussian{3.0}, accounting::Poisson{0.01},
                             accounting::Adjacency::kZeroOut),
           1000);
  const double upper = plan.epsilon(1e-5).value.upper;
  const auto planned = static_cast<std::uint64_t>(std::ceil(upper * kMicro));
  EXPECT_LT(planned, kPromised / 4);
  expect_stated(Withdrawn(), planned);
}

TEST(Withdrawal, StatesWhatAllUsesWouldHaveCostWhereNoPlanIsRecorded) {
  const Withdrawn old(3'000'000'000, 1);
  Store store(old.path, Store::Mode::kRead);
  EXPECT_LT(trace(store, hash_of(old.who[1])).uses[1].use.spend, 500'000U)
      << "at the time of the withdrawal";
  expect_stated(old, kPromised);
}

// Its receipts are signatures: the key must have signed that tree before.
TEST(Withdrawal, ABundleIsMadeOnlyOfALedgerThatTheKeySigned) {
  const Withdrawn w;
  EXPECT_FALSE(withdrawal_bundle(w.path, ledger_key(), hash_of(w.who[1])).empty());
  EXPECT_THROW(withdrawal_bundle(w.path, key(9), hash_of(w.who[1])), Error);
  {
    Database db(w.path, Database::Mode::kWrite, "ledger");
    std::uint64_t last = 0;
    Bytes items;
    {
      Statement row = db.prepare("SELECT position, items FROM leaf ORDER BY position DESC LIMIT 1");
      ASSERT_TRUE(row.step());
      last = row.number(0);
      items.assign(row.bytes(1).begin(), row.bytes(1).end());
    }
    items.back() ^= 1;  // of the last manifest's hash
    db.prepare("UPDATE leaf SET items = ?2 WHERE position = ?1")
        .bind(1, last)
        .bind(2, items)
        .once();
  }
  EXPECT_FALSE(verify(w.path).ok);
  EXPECT_THROW(withdrawal_bundle(w.path, ledger_key(), hash_of(w.who[1])), Error);
}

TEST(Withdrawal, OfAContributionThatWasNeverUsedStatesNothing) {
  const Folder folder;
  Ledger ledger = Ledger::create(folder / "l.db", header(), bytes_of("policy"), ledger_key());
  const auto who = contributions(0, 1);
  ledger.admit(who);
  ledger.withdraw(std::vector{withdrawal(hash_of(who[0]), contributor_key())});
  Store store(folder / "l.db", Store::Mode::kRead);
  EXPECT_EQ(trace(store, hash_of(who[0])).spend, 0U);
  EXPECT_EQ(ledger.state().spend_of(ledger.state().contributions()[0]), 0U);
}

TEST(Withdrawal, OfOtherPromisesAndFamiliesStatesTheirOwnBound) {
  const Bound amplified{1'000'000'000, Promise::kAmplified, 2'000'000'000, 0, 3'000'000};
  const Spends pld("pld", 1e-5);
  Terms gaussian = terms();
  EXPECT_EQ(pld.withdrawn(amplified, std::vector{event_of(gaussian, amplified).event}), 3'000'000U);
  // Discrete noise has no promise of Gaussian DP: k uses without sampling, whatever the epochs.
  const Spends rdp("rdp", 1e-5);
  const Bound worst{1'000'000'000, Promise::kWorstCase, 1'000'000'000, 4, 0};
  Terms discrete = terms();
  discrete.family = Family::kDiscreteGaussian;
  discrete.grid = 1'000'000;
  const accounting::Event event = event_of(discrete, worst).event;
  const accounting::Event use(event.mechanism(), accounting::NoSampling{}, event.adjacency());
  EXPECT_EQ(rdp.withdrawn(worst, std::vector{event}), rdp.least(use, 4));
  EXPECT_GT(rdp.withdrawn(worst, std::vector{event}), rdp.least(event, 100));
}

TEST(DeletionEvents, ComeBackFromTheirLinesAndSayWhichLineIsNone) {
  const Withdrawal one = sign_withdrawal(contributor_key(), "o", sha256({}), "a \"reason\"", 7);
  const std::string line = write_deletion_event(one);
  const auto back = read_deletion_events(line + "\n" + line);
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(encode(back[1]), encode(one));
  for (const std::string& bad :
       {std::string("{}"), std::string("[]"), std::string("nonsense"), line.substr(0, 40),
        std::string("{\"descriptor\":\"00\",\"reason\":\"\",\"time\":1,\"public_key\":\"\","
                    "\"signature\":\"\"}"),
        std::string("{\"descriptor\":1,\"reason\":\"\",\"time\":-1,\"public_key\":\"\","
                    "\"signature\":\"\"}")}) {
    try {
      read_deletion_events(line + bad);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_NE(error.sentence().find("line 2"), std::string::npos) << error.sentence();
    }
  }
}

TEST(WithdrawalBundle, IsVerifiedWithoutTheLedger) {
  const Withdrawn w;
  const std::string bundle = withdrawal_bundle(w.path, ledger_key(), hash_of(w.who[1]));
  const BundleVerdict verdict = verify_bundle(bundle, ledger_key().public_key());
  ASSERT_TRUE(verdict.ok) << verdict.problem;
  EXPECT_EQ(verdict.uses, 2u);
  EXPECT_EQ(verdict.releases, 1u);
  EXPECT_EQ(verdict.descriptor, to_hex(hash_of(w.who[1])));
  EXPECT_FALSE(verify_bundle(bundle, key(7).public_key()).ok);
  EXPECT_THROW(withdrawal_bundle(w.path, ledger_key(), hash_of(w.who[0])), Error);
}

TEST(WithdrawalBundle, NoAlteredPartIsMissed) {
  const Withdrawn w;
  const std::string bundle = withdrawal_bundle(w.path, ledger_key(), hash_of(w.who[1]));
  const auto whole = nlohmann::json::parse(bundle);
  // Every hexadecimal text of the bundle, one digit changed.
  int altered = 0;
  const auto flat = whole.flatten();
  for (const auto& [where, value] : flat.items()) {
    if (!value.is_string() || where == "/format") continue;
    std::string text = value.get<std::string>();
    for (const std::size_t at : {text.size() / 3, text.size() / 2, text.size() - 2}) {
      std::string changed = text;
      changed[at] = changed[at] == '0' ? '1' : '0';
      auto other = whole;
      other[nlohmann::json::json_pointer(where)] = changed;
      EXPECT_FALSE(
          verify_bundle(other.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), {})
              .ok)
          << where << " at " << at;
      ++altered;
    }
  }
  EXPECT_GT(altered, 50);
  for (const auto& [where, value] : whole.items()) {
    auto other = whole;
    other.erase(where);
    EXPECT_FALSE(verify_bundle(other.dump(), {}).ok) << where;
  }
  EXPECT_FALSE(verify_bundle("", {}).ok);
  EXPECT_FALSE(verify_bundle("[]", {}).ok);
}

// The same key signed another ledger of as many entries, in which more noise was recorded: its uses
// do not pass for those of this one.
TEST(WithdrawalBundle, NamesNoUseAndNoReleaseTwice) {
  const Withdrawn w;
  auto bundle = nlohmann::json::parse(withdrawal_bundle(w.path, ledger_key(), hash_of(w.who[1])));
  for (const char* list : {"uses", "releases"}) {
    auto doubled = bundle;
    ASSERT_FALSE(doubled[list].empty()) << list;
    doubled[list].push_back(doubled[list].back());
    const BundleVerdict verdict = verify_bundle(doubled.dump(), {});
    EXPECT_FALSE(verdict.ok) << list;
    EXPECT_NE(verdict.problem.find("twice"), std::string::npos) << verdict.problem;
  }
}

TEST(WithdrawalBundle, TakesNoPartOfAnotherTreeOfTheSameSizeAndKey) {
  const Withdrawn spent, fork(9'000'000'000);
  const auto bundle_of = [](const Withdrawn& w) {
    return nlohmann::json::parse(withdrawal_bundle(w.path, ledger_key(), hash_of(w.who[1])));
  };
  const auto honest = bundle_of(spent), less = bundle_of(fork);
  for (const char* part : {"uses", "withdrawal", "admission", "header", "releases", "consistency",
                           "note", "note_at_admission"}) {
    auto forged = honest;
    forged[part] = less.at(part);
    // Up to the admission both trees are the same, and so are these parts.
    if (forged == honest) continue;
    const BundleVerdict verdict = verify_bundle(forged.dump(), ledger_key().public_key());
    EXPECT_FALSE(verdict.ok) << part;
  }
  auto forged = honest;
  for (const char* part : {"uses", "releases", "withdrawal"}) forged[part] = less.at(part);
  EXPECT_FALSE(verify_bundle(forged.dump(), ledger_key().public_key()).ok);
  EXPECT_TRUE(verify_bundle(honest.dump(), ledger_key().public_key()).ok);
  EXPECT_TRUE(verify_bundle(less.dump(), ledger_key().public_key()).ok);
}

}  // namespace
}  // namespace discreet::ledger
