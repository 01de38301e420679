// The contract of accountant.h, checked on every accountant.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "discreet/accounting/accountant.h"
#include "discreet/accounting/sum_rule.h"
#include "discreet/accounting/transform/transform.h"
#include "discreet/base/error.h"
#include "discreet/base/error_testing.h"

namespace discreet::accounting {
namespace {

Event poisson(double rate, double sigma, Adjacency adjacency = Adjacency::kAddRemove) {
  return {Gaussian{sigma}, Poisson{rate}, adjacency};
}
Event full_batch(double sigma, Adjacency adjacency = Adjacency::kAddRemove) {
  return {Gaussian{sigma}, NoSampling{}, adjacency};
}

double exact_gaussian_delta(double mu, double epsilon) {
  const auto phi = [](long double x) { return 0.5L * std::erfc(-x / std::sqrt(2.0L)); };
  const long double m = mu;
  const long double e = epsilon;
  return static_cast<double>(phi(m / 2 - e / m) - std::exp(e) * phi(-m / 2 - e / m));
}

struct Kind {
  const char* name;
  bool log_space;
};

class AccountantContract : public testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Accountant> fresh() const {
    return make_accountant(GetParam().name, {.log_space_accounting = GetParam().log_space});
  }
  double upper(const std::vector<std::pair<Event, std::uint64_t>>& events, double delta) const {
    const auto accountant = fresh();
    for (const auto& [event, count] : events) accountant->compose(event, count);
    return accountant->epsilon(delta).epsilon.upper;
  }
};

TEST_P(AccountantContract, KnowsItsNameAndStartsAtZero) {
  const auto accountant = fresh();
  EXPECT_EQ(accountant->name(), GetParam().name);
  EXPECT_EQ(accountant->epsilon(1e-5).epsilon.upper, 0);
  EXPECT_EQ(accountant->delta(0).upper, 0);
}

TEST_P(AccountantContract, IsMonotone) {
  const double base = upper({{poisson(0.02, 1.2), 400}}, 1e-5);
  EXPECT_GT(base, 0);
  EXPECT_GE(upper({{poisson(0.02, 1.2), 401}}, 1e-5), base);
  EXPECT_GE(upper({{poisson(0.02, 1.2), 400}, {full_batch(30), 1}}, 1e-5), base);
  EXPECT_GE(upper({{poisson(0.02, 1.19), 400}}, 1e-5), base);
  EXPECT_GE(upper({{poisson(0.0201, 1.2), 400}}, 1e-5), base);
  EXPECT_GE(upper({{poisson(0.02, 1.2), 400}}, 0.9e-5), base);
}

TEST_P(AccountantContract, SaysBeforehandWhetherAStepWouldExceedATargetAndStaysAsItIs) {
  const auto accountant = fresh();
  const double first = upper({{poisson(0.02, 1.2), 1}}, 1e-5);
  EXPECT_FALSE(accountant->would_exceed(poisson(0.02, 1.2), 1, first * 1.0001, 1e-5));
  EXPECT_TRUE(accountant->would_exceed(poisson(0.02, 1.2), 1, first * 0.9, 1e-5));
  accountant->compose(poisson(0.02, 1.2), 300);
  const Bytes before = accountant->save();
  const double after = upper({{poisson(0.02, 1.2), 400}}, 1e-5);
  EXPECT_FALSE(accountant->would_exceed(poisson(0.02, 1.2), 100, after * 1.0001, 1e-5));
  EXPECT_TRUE(accountant->would_exceed(poisson(0.02, 1.2), 100, after * 0.98, 1e-5));
  EXPECT_EQ(accountant->save(), before);
  ASSERT_EQ(accountant->composed().size(), 1u);
  EXPECT_EQ(accountant->composed()[0].event, poisson(0.02, 1.2));
  EXPECT_EQ(accountant->composed()[0].count, 300u);
}

TEST_P(AccountantContract, DoesNotDependOnTheOrder) {
  const auto one = fresh();
  const auto other = fresh();
  const Event events[] = {poisson(0.01, 1), full_batch(20), poisson(0.02, 1.5)};
  for (int i = 0; i < 3; ++i) one->compose(events[i], 10);
  for (int i = 2; i >= 0; --i) other->compose(events[i], 10);
  EXPECT_EQ(one->epsilon(1e-6).epsilon.upper, other->epsilon(1e-6).epsilon.upper);
  EXPECT_EQ(one->epsilon(1e-6).epsilon.lower, other->epsilon(1e-6).epsilon.lower);
  EXPECT_EQ(one->delta(1).upper, other->delta(1).upper);
  EXPECT_EQ(one->save(), other->save());
}

TEST_P(AccountantContract, CountsWhatIsRepeated) {
  const auto repeated = fresh();
  const auto counted = fresh();
  for (int i = 0; i < 7; ++i) repeated->compose(poisson(0.05, 2));
  counted->compose(poisson(0.05, 2), 7);
  EXPECT_EQ(repeated->epsilon(1e-5).epsilon.upper, counted->epsilon(1e-5).epsilon.upper);
  EXPECT_EQ(repeated->save(), counted->save());
}

TEST_P(AccountantContract, RestoresBitForBit) {
  const auto accountant = fresh();
  accountant->compose(poisson(0.01, 1.1), 12345);
  accountant->compose(full_batch(50), 3);
  const Bytes bytes = accountant->save();
  const auto restored = make_accountant(GetParam().name);
  restored->restore(bytes);
  EXPECT_EQ(restored->save(), bytes);
  EXPECT_EQ(restored->epsilon(1e-7).epsilon.upper, accountant->epsilon(1e-7).epsilon.upper);
  EXPECT_EQ(restored->epsilon(1e-7).epsilon.lower, accountant->epsilon(1e-7).epsilon.lower);
}

TEST_P(AccountantContract, RefusesAStateThatIsNotItsOwn) {
  const auto accountant = fresh();
  accountant->compose(poisson(0.01, 1.1), 5);
  const Bytes bytes = accountant->save();
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    try {
      accountant->restore(ByteView(bytes).first(cut));
      ADD_FAILURE() << cut;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    }
  }
  const auto stranger = make_accountant(std::string(GetParam().name) == "rdp" ? "moments" : "rdp");
  EXPECT_THROW(accountant->restore(stranger->save()), Error);
  EXPECT_EQ(accountant->save(), bytes);
}

TEST_P(AccountantContract, RefusesAnEventItCannotBoundByName) {
  const auto accountant = fresh();
  accountant->compose(poisson(0.01, 1));
  const Bytes before = accountant->save();
  const Event event(Gaussian{1}, TruncatedPoisson{0.01, 100, 1000}, Adjacency::kAddRemove);
  try {
    accountant->compose(event);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
    EXPECT_NE(error.sentence().find("truncated_poisson gaussian"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(accountant->save(), before);
}

TEST_P(AccountantContract, RefusesToMixAdjacencies) {
  const auto accountant = fresh();
  EXPECT_EQ(accountant->adjacency(), Adjacency::kAddRemove);
  accountant->compose(poisson(0.01, 1, Adjacency::kZeroOut));
  const Bytes before = accountant->save();
  EXPECT_THROW(accountant->compose(poisson(0.01, 1)), Error);
  EXPECT_EQ(accountant->save(), before);
  EXPECT_EQ(accountant->epsilon(1e-5).adjacency, Adjacency::kZeroOut);
  EXPECT_EQ(accountant->adjacency(), Adjacency::kZeroOut);
}

TEST_P(AccountantContract, RefusesNonsense) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto accountant = fresh();
  accountant->compose(poisson(0.01, 1), 10);
  const Bytes before = accountant->save();
  for (const double delta : {nan, 0.0, 1.0, -1.0}) {
    EXPECT_THROW(accountant->epsilon(delta), Error) << delta;
  }
  for (const double epsilon : {nan, -1.0, double{INFINITY}}) {
    EXPECT_THROW(accountant->delta(epsilon), Error) << epsilon;
  }
  EXPECT_THROW(accountant->compose(poisson(0.01, 1), 0), Error);
  EXPECT_THROW(accountant->compose(poisson(0.01, nan)), Error);
  EXPECT_THROW(accountant->compose(poisson(nan, 1)), Error);
  try {
    accountant->compose(poisson(0.01, 1), std::numeric_limits<std::uint64_t>::max());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAccountantOverflow);
  }
  EXPECT_EQ(accountant->save(), before);
}

TEST_P(AccountantContract, EnclosesTheGaussian) {
  for (const double sigma : {1.0, 4.0}) {
    for (const std::uint64_t count : {1, 9}) {
      const auto accountant = fresh();
      accountant->compose(full_batch(sigma), count);
      const double mu = std::sqrt(static_cast<double>(count)) / sigma;
      for (const double delta : {1e-3, 1e-9}) {
        const Interval epsilon = accountant->epsilon(delta).epsilon;
        EXPECT_LE(exact_gaussian_delta(mu, epsilon.upper), delta * (1 + 1e-9));
        if (epsilon.lower > 0) {
          EXPECT_GE(exact_gaussian_delta(mu, epsilon.lower), delta * (1 - 1e-9));
        }
      }
      const Interval delta = accountant->delta(1);
      EXPECT_GE(delta.upper, exact_gaussian_delta(mu, 1) * (1 - 1e-12));
      EXPECT_LE(delta.lower, exact_gaussian_delta(mu, 1) * (1 + 1e-12));
    }
  }
  // Replacing a record moves the sum by twice its bound.
  const auto replaced = fresh();
  replaced->compose(full_batch(2, Adjacency::kReplaceOne));
  EXPECT_GE(replaced->delta(1).upper, exact_gaussian_delta(1, 1) * (1 - 1e-12));
}

TEST_P(AccountantContract, IsNeverBelowTheCertifiedLowerBound) {
  const struct {
    double rate, sigma;
    std::uint64_t count;
    double delta;
  } settings[] = {{0.01, 1, 1000, 1e-5},
                  {0.04, 1.5, 2250, 1e-5},
                  {0.001, 0.6, 10000, 1e-5},
                  {0.2, 0.8, 20, 1e-6},
                  {0.5, 5, 100, 1e-3}};
  for (const auto& s : settings) {
    const Composition composition{{{s.rate, s.sigma, s.count}}, {}};
    const double lower =
        transform_epsilon(composition, Direction::kRemove, s.delta, 1e-3).value.lower;
    EXPECT_GT(lower, 0);
    EXPECT_GE(upper({{poisson(s.rate, s.sigma), s.count}}, s.delta), lower)
        << s.rate << " " << s.sigma;
  }
}

TEST_P(AccountantContract, EpsilonAndDeltaAgree) {
  const auto accountant = fresh();
  accountant->compose(poisson(0.02, 1), 300);
  const double epsilon = accountant->epsilon(1e-5).epsilon.upper;
  EXPECT_LE(accountant->delta(epsilon).upper, 1e-5 * (1 + 1e-4));
  EXPECT_GE(accountant->delta(epsilon * 0.98).upper, 1e-5);
}

TEST_P(AccountantContract, ClonesAreIndependent) {
  const auto accountant = fresh();
  accountant->compose(poisson(0.02, 1), 3);
  const Bytes before = accountant->save();
  const auto copy = accountant->clone();
  copy->compose(poisson(0.02, 1), 3);
  EXPECT_EQ(accountant->save(), before);
  EXPECT_NE(copy->save(), before);
}

INSTANTIATE_TEST_SUITE_P(
    Every, AccountantContract,
    testing::Values(Kind{"pld", false}, Kind{"f_dp", false}, Kind{"rdp", false}, Kind{"rdp", true},
                    Kind{"moments", false}, Kind{"moments", true}, Kind{"gdp", false}),
    [](const auto& param) {
      return std::string(param.param.name) + (param.param.log_space ? "_log_space" : "");
    });

TEST_P(AccountantContract, AgreesWithASecondComputation) {
  const auto accountant = fresh();
  EXPECT_TRUE(require_agreement(*accountant, 1e-5));
  accountant->compose(poisson(0.02, 1), 300);
  accountant->compose(poisson(0.1, 2), 40);
  EXPECT_TRUE(require_agreement(*accountant, 1e-5));
}

// An accountant that states a fraction of the epsilon it should.
class Understating final : public Accountant {
 public:
  explicit Understating(double fraction) : fraction_(fraction), true_(make_accountant("pld")) {}
  std::string_view name() const noexcept override { return "pld"; }
  std::unique_ptr<Accountant> clone() const override { return true_->clone(); }
  Adjacency adjacency() const noexcept override { return true_->adjacency(); }
  std::vector<RepeatedEvent> composed() const override { return true_->composed(); }
  void compose(const Event& event, std::uint64_t count) override { true_->compose(event, count); }
  EpsilonBound epsilon(double delta) const override {
    EpsilonBound out = true_->epsilon(delta);
    out.epsilon = {out.epsilon.lower * fraction_, out.epsilon.upper * fraction_};
    return out;
  }
  Interval delta(double epsilon) const override { return true_->delta(epsilon); }
  Bytes save() const override { return true_->save(); }
  void restore(ByteView bytes) override { true_->restore(bytes); }

 private:
  double fraction_;
  std::unique_ptr<Accountant> true_;
};

TEST(Accountants, OneThatUnderstatesByAThousandthDoesNotAgree) {
  Understating wrong(0.999), right(1);
  for (Accountant* each : {static_cast<Accountant*>(&wrong), static_cast<Accountant*>(&right)})
    each->compose(poisson(0.01, 1), 1000);
  EXPECT_TRUE(require_agreement(right, 1e-5));
  EXPECT_EQ(code_of([&] { require_agreement(wrong, 1e-5); }), ErrorCode::kAccountantDivergence);
}

TEST(Accountants, AreFoundByNameOnly) {
  EXPECT_THROW(make_accountant("PLD"), Error);
  EXPECT_THROW(make_accountant(""), Error);
}

TEST(Accountants, PldIsNoLooserThanRdpAndRdpNoLooserThanMoments) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> unit;
  for (int i = 0; i < 60; ++i) {
    const double rate = std::exp(-7 * unit(random));
    const double sigma = 0.7 + 3 * unit(random);
    const auto count = static_cast<std::uint64_t>(std::exp(3 + 5 * unit(random)));
    const double delta = std::exp(-5 - 15 * unit(random));
    const auto rdp = make_accountant("rdp");
    const auto moments = make_accountant("moments");
    rdp->compose(poisson(rate, sigma), count);
    moments->compose(poisson(rate, sigma), count);
    const double loose = moments->epsilon(delta).epsilon.upper;
    const double middle = rdp->epsilon(delta).epsilon.upper;
    const auto pld = make_accountant("pld");
    pld->compose(poisson(rate, sigma), count);
    const double tight = pld->epsilon(delta).epsilon.upper;
    SCOPED_TRACE(testing::Message() << rate << " " << sigma << " " << count << " " << delta);
    EXPECT_LE(tight, middle);
    EXPECT_LE(middle, loose);
  }
}

TEST(Accountants, GdpNeverLendsItsApproximationToTheBound) {
  const auto gdp = make_accountant("gdp");
  gdp->compose(poisson(0.001, 0.6), 10000);
  const EpsilonBound bound = gdp->epsilon(1e-5);
  ASSERT_TRUE(bound.approximation.has_value());
  EXPECT_NEAR(bound.approximation->not_a_bound(), 1.505, 1e-3);
  EXPECT_GE(bound.epsilon.upper, 2.456);  // the truth
  gdp->restore(make_accountant("gdp")->save());
  gdp->compose(full_batch(2), 4);
  EXPECT_FALSE(gdp->epsilon(1e-5).approximation.has_value());
  EXPECT_LT(gdp->epsilon(1e-5).epsilon.upper - gdp->epsilon(1e-5).epsilon.lower, 1e-9);
}

TEST(Accountants, GroupsOnOneSubsampleAreOneGaussian) {
  // Four groups of multiplier 2 are one Gaussian of multiplier 1: 1.828 is true, the sum rule says
  // 1.430, and with sixteen groups 3.05 instead of 13.36.
  const auto groups = [](std::size_t count) {
    return Event(GaussianGroups{std::vector<Group>(count, Group{2, 1}), {}, {}}, Poisson{0.01},
                 Adjacency::kAddRemove);
  };
  for (const char* name : {"pld", "rdp", "moments", "gdp", "f_dp"}) {
    const auto together = make_accountant(name);
    together->compose(groups(4), 1000);
    const auto one = make_accountant(name);
    one->compose(poisson(0.01, 1), 1000);
    EXPECT_NEAR(together->epsilon(1e-5).epsilon.upper, one->epsilon(1e-5).epsilon.upper, 1e-9);
    EXPECT_GE(together->epsilon(1e-5).epsilon.upper, 1.828) << name;
  }
  EXPECT_NEAR(rdp_sum_rule_epsilon({{groups(4), 1000}}, 1e-5).not_a_bound(), 1.430, 1e-3);
  EXPECT_NEAR(rdp_sum_rule_epsilon({{groups(16), 1000}}, 1e-5).not_a_bound(), 3.05, 1e-2);
  static_assert(!std::is_convertible_v<SumRuleEpsilon, double>);
  EXPECT_THROW(
      rdp_sum_rule_epsilon({{Event(Laplace{1}, NoSampling{}, Adjacency::kAddRemove), 1}}, 1e-5),
      Error);
}

TEST(Accountants, RdpBoundsEveryNoiseItNames) {
  const auto a = Adjacency::kAddRemove;
  for (const Event& event :
       {Event(Laplace{5}, Poisson{0.1}, a), Event(Laplace{5}, NoSampling{}, a),
        Event(DiscreteGaussian{4, 10}, Poisson{0.1}, a), Event(RoundedGaussian{4}, Poisson{0.1}, a),
        Event(Skellam{400, 30, 10, 5}, Poisson{0.1}, a), Event(Gaussian{4}, FixedSize{10, 100}, a),
        Event(Guarantee{0.1, 1e-9}, NoSampling{}, a)}) {
    const auto rdp = make_accountant("rdp");
    rdp->compose(event, 10);
    const double epsilon = rdp->epsilon(1e-6).epsilon.upper;
    EXPECT_GT(epsilon, 0) << describe(event);
    EXPECT_LT(epsilon, 10) << describe(event);
  }
  // Shuffled epochs earn no amplification: E of them at zero-out are E full batches.
  const auto shuffled = make_accountant("rdp");
  shuffled->compose(Event(Gaussian{5}, ShuffledEpoch{100}, Adjacency::kZeroOut), 10);
  const auto full = make_accountant("rdp");
  full->compose(full_batch(5, Adjacency::kZeroOut), 10);
  EXPECT_EQ(shuffled->epsilon(1e-5).epsilon.upper, full->epsilon(1e-5).epsilon.upper);
  EXPECT_GE(shuffled->epsilon(1e-5).epsilon.upper, 2.59);
  const auto gdp = make_accountant("gdp");
  gdp->compose(Event(Gaussian{5}, ShuffledEpoch{100}, Adjacency::kZeroOut), 10);
  EXPECT_NEAR(gdp->epsilon(1e-5).epsilon.upper, 2.59, 0.005);
  const auto replaced = make_accountant("gdp");
  replaced->compose(Event(Gaussian{5}, ShuffledEpoch{100}, Adjacency::kReplaceOne), 10);
  EXPECT_NEAR(replaced->epsilon(1e-5).epsilon.upper, 5.76, 0.005);
}

// If the batch contains all records, the neighbour with one record less has no such batch. No
// accountant may return an epsilon where another one rejects the event.
TEST(Accountants, RefuseAFixedBatchOfEveryoneUnderAddRemove) {
  const Event whole(Gaussian{4}, FixedSize{100, 100}, Adjacency::kAddRemove);
  for (const char* name : {"pld", "f_dp", "rdp", "moments", "gdp"}) {
    EXPECT_THROW(make_accountant(name)->compose(whole), Error) << name;
  }
  const Event replaced(Gaussian{4}, FixedSize{100, 100}, Adjacency::kReplaceOne);
  EXPECT_NO_THROW(make_accountant("rdp")->compose(replaced));
}

TEST(Accountants, RdpChargesTheDeltaOfGuarantees) {
  const auto rdp = make_accountant("rdp");
  rdp->compose(Event(Guarantee{0.5, 1e-6}, NoSampling{}, Adjacency::kAddRemove), 2);
  EXPECT_EQ(rdp->epsilon(1.9e-6).epsilon.upper, INFINITY);
  EXPECT_LE(rdp->epsilon(1e-3).epsilon.upper, 1.001);
  EXPECT_GE(rdp->delta(2).upper, 1.9e-6);
  EXPECT_THROW(make_accountant("moments")->compose(
                   Event(Guarantee{0.5, 1e-6}, NoSampling{}, Adjacency::kAddRemove)),
               Error);
}

}  // namespace
}  // namespace discreet::accounting
