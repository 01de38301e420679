#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "discreet/accounting/accountant.h"
#include "discreet/accounting/pld.h"
#include "discreet/base/error_testing.h"
#include "discreet/ledger/ledger.h"
#include "discreet/ledger/ledger_testing.h"
#include "discreet/ledger/verify.h"

namespace discreet::ledger {
namespace {

using namespace testing;

TEST(Ledger, AnAmplifiedPromiseStopsTheEpochThatWouldPassIt) {
  Folder folder;
  Ledger ledger = Ledger::create(folder / "l.db", header(), bytes_of("policy"), ledger_key());
  auto d = admission::decode_descriptor(contribution(0).descriptor);
  d.promise = admission::Promise::kAmplified;
  d.noise_multiplier = {4'000'000'000};
  const Bytes bytes = admission::encode(d);
  ledger.admit(std::vector<Ledger::Contribution>{
      {bytes, admission::attest(contributor_key(), bytes), contributor_key().public_key()}});
  Terms t = terms("public", 1'000'000'000);
  t.planned_steps = 1'000'000;
  EXPECT_THROW(ledger.reserve_epoch("long", 0, kToday, {t}), Error) << "a plan that passes it";
  t.planned_steps = t.steps;
  std::uint64_t runs = 0;
  const auto reserve = [&] {
    while (runs < 10000)
      ledger.reserve_epoch("run " + std::to_string(runs), 0, kToday, {t}), ++runs;
  };
  EXPECT_THROW(reserve(), Error);
  // One Gaussian release of multiplier 4 has epsilon 0.9; one epoch here spends 0.5, several exceed
  // it.
  EXPECT_GT(runs, 0u);
  EXPECT_LT(runs, 100u);
  EXPECT_EQ(ledger.state().counts().epochs, runs);
}

// At most k uses are 1/z-GDP together, so that is what a contribution costs at most, however many
// epochs name it.
TEST(Ledger, ASpendNeverPassesWhatWasPromised) {
  Folder folder;
  Ledger ledger = Ledger::create(folder / "l.db", header(), bytes_of("policy"), ledger_key());
  ledger.admit(contributions(0, 1));  // z = 1, k = 4
  accounting::PldAccountant one(accounting::Adjacency::kZeroOut);
  one.add(accounting::Event(accounting::Gaussian{1.0}, accounting::NoSampling{},
                            accounting::Adjacency::kZeroOut),
          1);
  const double promised = one.epsilon(1e-5).value.upper;
  Terms t = terms();
  t.steps = t.planned_steps = 20'000;
  std::vector<double> spent;
  for (int run = 0; run < 20; ++run) {
    ledger.reserve_epoch("run " + std::to_string(run), 0, kToday, {t});
    spent.push_back(static_cast<double>(ledger.state().contributions()[0].recorded) / kMicro);
  }
  EXPECT_LT(spent.front(), promised / 2);
  EXPECT_GE(spent.back(), promised);
  EXPECT_LE(spent.back(), promised + 3e-6);
  EXPECT_TRUE(std::is_sorted(spent.begin(), spent.end()));
  EXPECT_TRUE(verify(folder / "l.db").ok);
}

// A record is clipped until k uses of it keep the promise, under every family by its own
// multiplier.
TEST(Ledger, EveryFamilyOfNoiseIsRecordedWithTheCutThatKeepsThePromise) {
  const Bound bound{1'000'000'000, Promise::kWorstCase, 1'000'000'000, 4,
                    0};                      // C = 1, z = 1, k = 4
  Terms t = terms("public", 1'000'000'000);  // less than C z sqrt(k): the record is clipped to 1/m
  t.family = Family::kLaplace;
  const auto laplace = std::get<accounting::Laplace>(event_of(t, bound).event.mechanism());
  // x = 1/2; e = log(Phi(x/2) / Phi(-x/2)); scale over L1 bound is 1/e.
  const double phi = 0.5 * std::erfc(-0.25 / std::sqrt(2.0));
  EXPECT_NEAR(laplace.scale, 1 / std::log(phi / (1 - phi)), 1e-9);
  t.family = Family::kDiscreteGaussian;
  t.grid = 1'000'000;
  const auto discrete =
      std::get<accounting::DiscreteGaussian>(event_of(t, bound).event.mechanism());
  EXPECT_NEAR(discrete.noise_multiplier, 2, 1e-9);
  EXPECT_NEAR(discrete.sensitivity, 500, 1e-6);
  t.family = Family::kSkellam;
  const auto skellam = std::get<accounting::Skellam>(event_of(t, bound).event.mechanism());
  EXPECT_NEAR(skellam.variance, 1e6, 1e-3);
  EXPECT_NEAR(skellam.l2, 1000, 1e-6);
  EXPECT_NEAR(skellam.l1, 1e6, 1e-3);
  EXPECT_GE(skellam.l2, 1000);
  t.grid = 0;
  EXPECT_THROW(event_of(t, bound), Error);
  // And in a ledger: what each costs is recorded and verified.
  for (const Family family : {Family::kLaplace, Family::kDiscreteGaussian, Family::kSkellam}) {
    Folder folder;
    Ledger ledger =
        Ledger::create(folder / "l.db", header("rdp"), bytes_of("policy"), ledger_key());
    ledger.admit(contributions(0, 2));
    Terms u = terms("public", 3'000'000'000);
    u.family = family;
    u.grid = family == Family::kLaplace ? 0 : 1'000'000;
    u.steps = u.planned_steps = 10;
    ledger.reserve_epoch("run", 0, kToday, {u});
    const Verification found = verify(folder / "l.db");
    EXPECT_TRUE(found.ok) << found.problem;
    EXPECT_GT(found.classes.at(0).most_spent, 0u);
  }
}

accounting::Event full_batch(double sigma) {
  return {accounting::Gaussian{sigma}, accounting::NoSampling{}, accounting::Adjacency::kZeroOut};
}

// The oracle is the accountant itself, fed with the whole history.
TEST(Ledger, ASpendIsThatOfAllEventsInAnyOrder) {
  Spends spends("rdp", 1e-5);
  const auto whole = accounting::make_accountant("rdp");
  std::vector<accounting::RepeatedEvent> history;
  for (std::uint64_t i = 0; i < 20; ++i) history.push_back({full_batch(3 + double(i % 7)), i + 1});
  Spends::StateId state = Spends::kNothing;
  for (const auto& next : history) {
    state = spends.after(state, next);
    whole->compose(next.event, next.count);
    const double upper = whole->epsilon(1e-5 * (1 - 0x1p-30)).epsilon.upper;
    EXPECT_NEAR(static_cast<double>(spends.least(state)), std::ceil(upper * kMicro), 1);
  }
  EXPECT_EQ(spends.events(state).size(), 7u);
  const std::size_t states = spends.states();
  std::ranges::reverse(history);
  Spends::StateId other = Spends::kNothing;
  for (const auto& next : history) other = spends.after(other, next);
  EXPECT_EQ(other, state) << "equal histories are one state";
  EXPECT_LT(spends.states(), 2 * states);
  EXPECT_NE(spends.after(state, history[0]), state);
}

TEST(Ledger, AnEventOccursAtMostTwoToThe53TimesInAHistory) {
  Spends spends("gdp", 1e-5);
  const auto all = spends.after(Spends::kNothing, {full_batch(1e9), kMostNumber});
  EXPECT_EQ(code_of([&] { spends.after(all, {full_batch(1e9), 1}); }), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code_of([&] {
              spends.after(Spends::kNothing, {full_batch(1e9), kMostNumber + 1});
            }),
            ErrorCode::kInvalidDpConfig);
  EXPECT_NO_THROW(spends.after(all, {full_batch(2e9), 1}));
}

}  // namespace
}  // namespace discreet::ledger
