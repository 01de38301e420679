#include "discreet/accounting/filter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <limits>
#include <random>

#include "discreet/accounting/renyi/rdp_conversion.h"
#include "discreet/base/error_testing.h"

namespace discreet::accounting {
namespace {

TEST(Filter, SumsAreNeverBelowTheTruthAndHardlyAbove) {
  SumRoundedUp sum;
  for (int i = 0; i < 1000000; ++i) sum.add(0.1);
  const long double exact = 1000000 * static_cast<long double>(0.1);  // 20 + 53 bits: fits
  EXPECT_GE(static_cast<long double>(sum.upper()), exact);
  EXPECT_LE(static_cast<long double>(sum.upper()), exact * (1 + 3e-16L));
  sum.add(INFINITY);
  EXPECT_EQ(sum.upper(), INFINITY);
}

TEST(Filter, RdpBudgetConvertsBackToTheTarget) {
  const double orders[] = {2, 8.5, 40};
  const RdpFilter filter(orders, 3, 1e-5);
  for (std::size_t i = 0; i < 3; ++i) {
    const double r = filter.budgets()[i];
    if (r == 0) continue;
    const double epsilon = epsilon_at_order(orders[i], r * (orders[i] - 1), 1e-5 / 3);
    EXPECT_LE(epsilon, 3);
    EXPECT_NEAR(epsilon, 3, 1e-10);
  }
  EXPECT_EQ(filter.budgets()[0], 0);  // order 2 cannot reach 3 at this delta
}

TEST(Filter, RdpStopsBeforeTheStepAndKeepsItsState) {
  const double order = 10;
  RdpFilter filter({&order, 1}, 2, 1e-5);
  const double budget = filter.budgets()[0];
  const double spend = budget / 4 * (1 - 1e-12);
  for (int i = 0; i < 4; ++i) filter.spend({&spend, 1});
  const RdpFilter before = filter;
  EXPECT_FALSE(filter.admits({&spend, 1}));
  EXPECT_EQ(code_of([&] { filter.spend({&spend, 1}); }), ErrorCode::kPrivacyBudgetExceeded);
  EXPECT_EQ(filter, before);
  const double nothing = 0;
  filter.spend({&nothing, 1});
}

TEST(Filter, RdpGoesOnWhileOneOrderIsWithinItsBudget) {
  const double orders[] = {8, 40};
  RdpFilter filter(orders, 3, 1e-5);
  const double spends[] = {filter.budgets()[0] / 2, INFINITY};  // order 40 is exceeded at once
  filter.spend(spends);
  filter.spend(spends);
  EXPECT_EQ(code_of([&] { filter.spend(spends); }), ErrorCode::kPrivacyBudgetExceeded);
}

TEST(Filter, ZcdpTargetMatchesTheGaussian) {
  // A Gaussian of multiplier s spends 1/(2 s^2); its Rényi epsilon is the claim of the filter.
  const ZcdpFilter filter(0.5 / 4);
  const double epsilon = filter.epsilon(1e-6);
  EXPECT_NEAR(ZcdpFilter::for_target(epsilon, 1e-6).budget(), 0.125, 1e-9);
  EXPECT_LE(ZcdpFilter::for_target(epsilon, 1e-6).epsilon(1e-6), epsilon);
  // rho + 2 sqrt(rho log(1/delta)) is the classical, looser conversion.
  EXPECT_LT(epsilon, 0.125 + 2 * std::sqrt(0.125 * std::log(1e6)));
}

TEST(Filter, ZcdpStopsBeforeTheStepAndKeepsItsState) {
  ZcdpFilter filter(1);
  for (int i = 0; i < 8; ++i) filter.spend(0.125);
  const ZcdpFilter before = filter;
  EXPECT_EQ(code_of([&] { filter.spend(1e-300); }), ErrorCode::kPrivacyBudgetExceeded);
  EXPECT_EQ(filter, before);
  EXPECT_EQ(filter.spent(), 1);
}

TEST(Filter, RefusesNonsense) {
  const double order = 4;
  const double nan = NAN;
  EXPECT_EQ(code_of([&] { RdpFilter({&nan, 1}, 1, 1e-5); }), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code_of([&] { RdpFilter({}, 1, 1e-5); }), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code_of([&] { RdpFilter({&order, 1}, nan, 1e-5); }), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code_of([&] { RdpFilter({&order, 1}, 0.1, 1e-9); }), ErrorCode::kInvalidDpConfig);
  RdpFilter filter({&order, 1}, 10, 1e-5);
  EXPECT_EQ(code_of([&] { filter.spend({&nan, 1}); }), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of([&] { filter.spend({}); }), ErrorCode::kInvalidInput);
  EXPECT_EQ(filter.spent(0), 0);
  EXPECT_EQ(code_of([&] { ZcdpFilter(0); }), ErrorCode::kInvalidDpConfig);
  ZcdpFilter zcdp(1);
  EXPECT_EQ(code_of([&] { zcdp.spend(-1); }), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of([&] { zcdp.spend(nan); }), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of([&] { ZcdpOdometer(1, 0); }), ErrorCode::kInvalidDpConfig);
}

TEST(Filter, RestoresBitForBitAndRefusesOtherBytes) {
  const double orders[] = {8, 40};
  RdpFilter rdp(orders, 3, 1e-5);
  ZcdpFilter zcdp(0.3);
  ZcdpOdometer odometer(0.3, 1e-5);
  const double spends[] = {0.1, INFINITY};
  for (int i = 0; i < 3; ++i) {
    rdp.spend(spends);
    zcdp.spend(0.01);
    odometer.spend(0.1);
  }
  EXPECT_EQ(RdpFilter::restore(rdp.save()), rdp);
  EXPECT_EQ(ZcdpFilter::restore(zcdp.save()), zcdp);
  EXPECT_EQ(ZcdpOdometer::restore(odometer.save()), odometer);
  EXPECT_EQ(code_of([&] { RdpFilter::restore(zcdp.save()); }), ErrorCode::kMalformed);
  EXPECT_EQ(code_of([&] { ZcdpFilter::restore(odometer.save()); }), ErrorCode::kMalformed);
  for (const Bytes& bytes : {rdp.save(), zcdp.save(), odometer.save()}) {
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
      const ByteView part = ByteView(bytes).first(cut);
      EXPECT_EQ(code_of([&] { RdpFilter::restore(part); }), ErrorCode::kMalformed);
      EXPECT_EQ(code_of([&] { ZcdpFilter::restore(part); }), ErrorCode::kMalformed);
      EXPECT_EQ(code_of([&] { ZcdpOdometer::restore(part); }), ErrorCode::kMalformed);
    }
  }
  EXPECT_EQ(
      code_of([&] {
        ZcdpFilter::restore(cbor::encode(cbor::map(
            {{"type", "zcdp_filter"}, {"budget", 1.0}, {"spent", cbor::array({-1.0, 0.0})}})));
      }),
      ErrorCode::kMalformed);
}

TEST(IndividualFilters, LeaveOutWhoCannotPayAndLetThemReturn) {
  IndividualFilters filters(3, 1.0);
  std::uint8_t active[3];
  EXPECT_EQ(filters.update(std::vector{0.2, 0.7, 1.5}, active), 2);
  EXPECT_EQ(filters.update(std::vector{0.2, 0.7, 0.5}, active), 2);
  EXPECT_EQ(active[0], 1);
  EXPECT_EQ(active[1], 0);
  EXPECT_EQ(active[2], 1);
  EXPECT_NEAR(filters.spent()[1], 0.7, 1e-15);
  EXPECT_EQ(filters.update(std::vector{0.0, 0.2, 0.0}, active), 3);
  std::uint8_t one[1];
  EXPECT_EQ(filters.update(std::vector<std::uint64_t>{2}, std::vector{0.6}, one), 0);
  EXPECT_EQ(filters.update(std::vector<std::uint64_t>{2}, std::vector{0.4}, one), 1);
}

TEST(IndividualFilters, NeverSpendLessThanTheTruth) {
  IndividualFilters filters(1, 1e9);
  std::uint8_t active[1];
  long double exact = 0;
  std::mt19937_64 random(7);
  for (int i = 0; i < 10000; ++i) {
    const double spend = std::ldexp(static_cast<double>(random() >> 11), -60);
    exact += spend;
    filters.update({&spend, 1}, active);
  }
  EXPECT_GE(static_cast<long double>(filters.spent()[0]), exact);
  EXPECT_LE(static_cast<long double>(filters.spent()[0]), exact * (1 + 1e-11L));
}

TEST(IndividualFilters, RefuseNonsenseAndStayAsTheyWere) {
  IndividualFilters filters(2, 1);
  std::uint8_t active[2];
  EXPECT_EQ(code_of([&] {
              filters.update(std::vector{0.5, double{NAN}}, active);
            }),
            ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of([&] {
              filters.update(std::vector{0.5, -0.1}, active);
            }),
            ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of([&] { filters.update(std::vector{0.5}, active); }), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of([&] {
              filters.update(std::vector<std::uint64_t>{1, 1}, std::vector{0.1, 0.1}, active);
            }),
            ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of([&] {
              filters.update(std::vector<std::uint64_t>{0, 2}, std::vector{0.1, 0.1}, active);
            }),
            ErrorCode::kInvalidInput);
  EXPECT_EQ(filters.spent()[0], 0);
  EXPECT_EQ(code_of([&] { IndividualFilters(std::vector{0.5, 1.5}, 1); }), ErrorCode::kMalformed);
}

TEST(IndividualFilters, UpdateAMillionRecordsInTwentyMilliseconds) {
  IndividualFilters filters(1000000, 1);
  const std::vector<double> spends(1000000, 1e-3);
  std::vector<std::uint8_t> active(1000000);
  double best = INFINITY;
  for (int i = 0; i < 5; ++i) {
    const std::clock_t start = std::clock();  // of the processor: other work does not count
    ASSERT_EQ(filters.update(spends, active), 1000000);
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  RecordProperty("milliseconds", std::to_string(best * 1e3));
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(best, 0.020);
#endif
}

TEST(Odometer, MovesInDoublingPhases) {
  ZcdpOdometer odometer(0.1, 1e-6);
  EXPECT_EQ(odometer.epsilon(), 0);
  odometer.spend(0.1);
  EXPECT_EQ(odometer.phase(), 1);
  const double first = 0.1 + 2 * std::sqrt(0.1 * std::log(M_PI * M_PI / 6e-6));
  EXPECT_NEAR(odometer.epsilon(), first, 1e-12);
  odometer.spend(1e-12);
  EXPECT_EQ(odometer.phase(), 2);
  odometer.spend(0.65);
  EXPECT_EQ(odometer.phase(), 4);
  EXPECT_GE(odometer.epsilon(), first);
}

// An adversary that looks at the running loss and stops when it is as large as possible, with noise
// chosen from the past. 10^5 runs at delta = 1e-2: more than 1150 excesses happen with probability
// below 1e-6 if the bound holds, and a bound 40% lower is caught.
// 6 delta / pi^2 is not a binary64 number there and once read as delta.
TEST(Odometer, HoldsAtTheLeastDelta) {
  const double delta = std::numeric_limits<double>::denorm_min();
  ZcdpOdometer odometer(1, delta);
  odometer.spend(1);
  const double nats = 1074 * std::log(2.0) + std::log(M_PI * M_PI / 6);
  EXPECT_GE(odometer.epsilon(), 1 + 2 * std::sqrt(nats) - 1e-12);
  EXPECT_LE(odometer.epsilon(), 1 + 2 * std::sqrt(nats) + 1e-12);
}

TEST(Odometer, HoldsAgainstAnAdversaryThatPicksItsMoment) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  int above = 0;
  int above_shrunk = 0;
  const int runs = 100000;
  for (int run = 0; run < runs; ++run) {
    ZcdpOdometer odometer(0.05, 0.01);
    double loss = 0;
    bool exceeded = false;
    bool exceeded_shrunk = false;
    for (int t = 0; t < 40; ++t) {
      const double rho = loss < 0 ? 0.05 : 0.02;  // bolder when behind
      odometer.spend(rho);
      loss += rho + std::sqrt(2 * rho) * normal(random);
      const double epsilon = odometer.epsilon();
      exceeded = exceeded || loss > epsilon;
      exceeded_shrunk = exceeded_shrunk || loss > 0.6 * epsilon;
    }
    above += exceeded;
    above_shrunk += exceeded_shrunk;
  }
  EXPECT_LE(above, 1150);
  EXPECT_GT(above_shrunk, 1150);
}

}  // namespace
}  // namespace discreet::accounting
