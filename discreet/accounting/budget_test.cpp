#include "discreet/accounting/budget.h"

#include <gtest/gtest.h>

#include <cmath>

#include "discreet/base/error_testing.h"

namespace discreet::accounting {
namespace {

const Event kStep(Gaussian{1.5}, Poisson{0.05}, Adjacency::kAddRemove);
const Event kOther(Gaussian{1.6}, Poisson{0.05}, Adjacency::kAddRemove);

double epsilon_of(std::uint64_t steps) {
  const auto accountant = make_accountant("rdp");
  if (steps > 0) accountant->compose(kStep, steps);
  return accountant->epsilon(1e-5).epsilon.upper;
}

TEST(PrivacyBudget, AdmitsExactlyTheStepsThatFit) {
  PrivacyBudget budget(make_accountant("rdp"), epsilon_of(20), 1e-5, Granularity::kPerStep);
  for (int i = 0; i < 20; ++i) budget.step(kStep);
  const Bytes before = budget.accountant().save();
  EXPECT_EQ(code_of([&] { budget.step(kStep); }), ErrorCode::kPrivacyBudgetExceeded);
  EXPECT_EQ(budget.accountant().save(), before);
  EXPECT_EQ(budget.spent().epsilon.upper, epsilon_of(20));
}

TEST(PrivacyBudget, AddsNoToleranceInOurFavour) {
  const double target = std::nextafter(epsilon_of(20), 0.0);
  PrivacyBudget budget(make_accountant("rdp"), target, 1e-5, Granularity::kPerStep);
  for (int i = 0; i < 19; ++i) budget.step(kStep);
  EXPECT_EQ(code_of([&] { budget.step(kStep); }), ErrorCode::kPrivacyBudgetExceeded);
}

TEST(PrivacyBudget, ReservesAnEpochBeforeItsFirstStep) {
  PrivacyBudget budget(make_accountant("rdp"), epsilon_of(25), 1e-5, Granularity::kPerEpoch);
  EXPECT_EQ(code_of([&] { budget.step(kStep); }), ErrorCode::kPrivacyBudgetExceeded);
  budget.begin_epoch({{kStep, 10}});
  EXPECT_EQ(budget.spent().epsilon.upper, epsilon_of(10));  // before any step
  for (int i = 0; i < 10; ++i) budget.step(kStep);
  EXPECT_EQ(code_of([&] { budget.step(kStep); }), ErrorCode::kPrivacyBudgetExceeded);
  EXPECT_EQ(budget.spent().epsilon.upper, epsilon_of(10));
  budget.begin_epoch({{kStep, 10}});
  budget.step(kStep);
  // 30 steps do not fit, and what the second epoch did not use stays spent.
  const Bytes before = budget.accountant().save();
  EXPECT_EQ(code_of([&] { budget.begin_epoch({{kStep, 10}}); }), ErrorCode::kPrivacyBudgetExceeded);
  EXPECT_EQ(budget.accountant().save(), before);
  budget.step(kStep);  // the refused epoch did not disturb the running one
  budget.begin_epoch({{kStep, 5}});
  EXPECT_EQ(budget.spent().epsilon.upper, epsilon_of(25));
}

TEST(PrivacyBudget, GivesAStepOnlyWhatWasReservedForIt) {
  PrivacyBudget budget(make_accountant("rdp"), 10, 1e-5, Granularity::kPerEpoch);
  budget.begin_epoch({{kStep, 2}, {kOther, 1}});
  budget.step(kOther);
  EXPECT_EQ(code_of([&] { budget.step(kOther); }), ErrorCode::kPrivacyBudgetExceeded);
  budget.step(kStep);
  budget.step(kStep);
}

TEST(PrivacyBudget, RefusesNonsense) {
  const auto make = [](double epsilon, double delta) {
    PrivacyBudget(make_accountant("rdp"), epsilon, delta, Granularity::kPerStep);
  };
  EXPECT_EQ(code_of([&] { make(NAN, 1e-5); }), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code_of([&] { make(0, 1e-5); }), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code_of([&] { make(1, NAN); }), ErrorCode::kInvalidDpConfig);
  PrivacyBudget budget(make_accountant("rdp"), 1, 1e-5, Granularity::kPerStep);
  EXPECT_EQ(code_of([&] { budget.begin_epoch({{kStep, 1}}); }), ErrorCode::kInvalidDpConfig);
  auto spent = make_accountant("rdp");
  spent->compose(kStep, 100);
  EXPECT_EQ(code_of([&] { PrivacyBudget(std::move(spent), 0.1, 1e-5, Granularity::kPerStep); }),
            ErrorCode::kPrivacyBudgetExceeded);
}

}  // namespace
}  // namespace discreet::accounting
