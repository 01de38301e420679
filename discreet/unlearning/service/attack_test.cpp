#include "discreet/unlearning/service/attack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "discreet/base/error.h"
#include "discreet/unlearning/engines/stream_engine.h"
#include "discreet/unlearning/online/memory_pair.h"

namespace discreet::unlearning {
namespace {

TEST(Attack, LowerBoundsHaveTheirReferenceValues) {
  EXPECT_NEAR(epsilon_lower_bound({700, 300, 1000}, 1e-5, 0.05), 0.69155, 1e-5);
  EXPECT_NEAR(epsilon_lower_bound({9000, 100, 10000}, 1e-5, 0.05), 4.27135, 1e-5);
  EXPECT_NEAR(epsilon_lower_bound({10000, 0, 10000}, 1e-5, 0.05), 7.7326, 1e-4);
  EXPECT_EQ(epsilon_lower_bound({500, 500, 1000}, 1e-5, 0.05), 0);
}

TEST(Attack, ClopperPearsonHasItsClosedFormsAtTheEnds) {
  for (const std::uint64_t n : {1, 10, 1000, 1000000}) {
    const auto none = clopper_pearson(0, n, 0.025), all = clopper_pearson(n, n, 0.025);
    EXPECT_EQ(none.lower, 0);
    EXPECT_NEAR(none.upper, -std::expm1(std::log(0.025) / double(n)), 1e-8);
    EXPECT_EQ(all.upper, 1);
    EXPECT_NEAR(all.lower, std::exp(std::log(0.025) / double(n)), 1e-8);
  }
  // R: binom.test(7, 20)$conf.int is .1539092 .5921885.
  const auto some = clopper_pearson(7, 20, 0.025);
  EXPECT_NEAR(some.lower, 0.1539092, 1e-7);
  EXPECT_NEAR(some.upper, 0.5921885, 1e-7);
  EXPECT_THROW(clopper_pearson(2, 1, 0.05), Error);
  EXPECT_THROW(clopper_pearson(0, 0, 0.05), Error);
  EXPECT_THROW(clopper_pearson(0, 1, 0.0), Error);
}

TEST(Attack, SeldomExceedsTheEpsilonOfRandomisedResponse) {
  // Exactly epsilon = 1. 4000 experiments at alpha = .05: more than 260 violations have
  // probability below 1e-4 even if the bound were tight.
  const double truth = std::exp(1.0) / (1 + std::exp(1.0));
  std::mt19937_64 engine(5);
  std::binomial_distribution<std::uint64_t> hit(300, truth), miss(300, 1 - truth);
  int violations = 0;
  for (int i = 0; i < 4000; ++i) {
    violations += epsilon_lower_bound({hit(engine), miss(engine), 300}, 0, 0.05) > 1;
  }
  EXPECT_LE(violations, 260);
}

// A record with the largest effect, one dimension; `keep`: how much of the noise is used.
AttackCounts attack(double keep, std::uint64_t runs) {
  OdometerOptions o;
  o.accounting = Accounting::kGdp;
  o.gamma_priv = 1e6;
  o.enforced = {Loss::kLogistic, 1, 0.1, 0.05, 100, 1, 1};
  PrivacyOdometer fresh(o);
  fresh.finalize_with({}, 1000);
  const std::vector<double> x{1.0}, other{0.0};
  AttackCounts counts{0, 0, runs};
  for (const bool present : {true, false}) {
    NoiseSource noise = NoiseSource::insecure(present ? 1 : 2);
    for (std::uint64_t run = 0; run < runs; ++run) {
      auto odometer = std::make_shared<PrivacyOdometer>(fresh);
      StreamEngine engine(odometer, noise.fork(std::to_string(run)));
      for (RecordId id = 0; id < 3; ++id) engine.insert(id, other, 1);
      engine.insert(9, present ? x : other, 1);  // a null step where the record is absent
      const double before = engine.theta()[0];
      const RecordId id = 9;
      engine.erase({&id, 1});
      const double seen = before + keep * (engine.theta()[0] - before);
      // Fixed in advance: the midpoint of the two states without noise, G_f/(2 lambda s).
      const bool hit = seen > 0.05 / (2 * 0.1 * 6);
      (present ? counts.hits_deleted : counts.hits_never) += hit;
    }
  }
  return counts;
}

TEST(Attack, StaysBelowTheCertificateOfTheStreamEngine) {
  EXPECT_LE(epsilon_lower_bound(attack(1, 4000), 1e-5, 0.001), 1);
}

TEST(Attack, CatchesNoiseThatIsSkippedOrTooSmall) {
  EXPECT_GT(epsilon_lower_bound(attack(0, 2000), 1e-5, 0.001), 4);
  EXPECT_GT(epsilon_lower_bound(attack(0.05, 2000), 1e-5, 0.001), 3);
}

TEST(Attack, CatchesCurvatureMemoryThatIsKept) {
  // The specification's learner hides its parameters under noise and keeps its L-BFGS pairs: their
  // eigenvalues still show a record that was deleted.
  AttackCounts counts{0, 0, 400};
  for (const bool present : {true, false}) {
    for (std::uint64_t run = 0; run < counts.runs; ++run) {
      auto odometer = std::make_shared<PrivacyOdometer>(OdometerOptions{});
      MemoryPair pair(2, odometer, Calibrator(), Loss::kSquared, NoiseSource::insecure(run));
      const std::vector<double> usual{0.1, 0.1}, canary{3.0, 0.0};
      for (int i = 0; i < 5; ++i) pair.calibrate_step(usual, 1);
      pair.finalize_calibration(CalibrationStats{});
      const auto& last = present ? canary : usual;
      pair.insert(last, 1);
      odometer->finalize_with({}, 100000);
      pair.erase(last, 1);
      const bool hit = pair.lbfgs_bounds()->C > 1;
      (present ? counts.hits_deleted : counts.hits_never) += hit;
    }
  }
  EXPECT_GT(epsilon_lower_bound(counts, 1e-5, 0.001), 3);
}

}  // namespace
}  // namespace discreet::unlearning
