#include "discreet/unlearning/online/memory_pair.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "discreet/base/fork_testing.h"

namespace discreet::unlearning {
namespace {

using Vector = std::vector<double>;

// y = x'(1, -2, .5) + noise, |x| about 1.
struct Stream {
  std::mt19937_64 engine{17};
  std::normal_distribution<double> normal;
  std::pair<Vector, double> next() {
    Vector x(3);
    for (double& v : x) v = normal(engine) / std::sqrt(3.0);
    return {x, x[0] - 2 * x[1] + 0.5 * x[2] + 0.1 * normal(engine)};
  }
};

OdometerOptions literal() {
  OdometerOptions o;
  o.gamma_learn = 0.5;
  o.gamma_priv = 5;
  return o;
}

OdometerOptions certified(Guarantee guarantee = Guarantee::kPerRecord) {
  OdometerOptions o = literal();
  o.accounting = Accounting::kZcdp;
  o.guarantee = guarantee;
  o.enforced = {Loss::kSquared, 3, 0.1, 2, 4, 2, 4};
  return o;
}

MemoryPair pair_with(const std::shared_ptr<PrivacyOdometer>& odometer) {
  return {3, odometer, Calibrator(), Loss::kSquared, NoiseSource::insecure(2)};
}

void calibrate(MemoryPair& pair, Stream& stream, int n = 500) {
  for (int i = 0; i < n; ++i) {
    const auto [x, y] = stream.next();
    pair.calibrate_step(x, y);
  }
}

void warm_up(MemoryPair& pair, Stream& stream) {
  while (pair.phase() == Phase::kLearning) {
    const auto [x, y] = stream.next();
    pair.insert(x, y);
  }
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(MemoryPair, BeginsInCalibrationWithNothingSeen) {
  EXPECT_EQ(int(Phase::kCalibration), 1);
  EXPECT_EQ(int(Phase::kLearning), 2);
  EXPECT_EQ(int(Phase::kInterleaving), 3);
  const MemoryPair pair(3, std::make_shared<PrivacyOdometer>(literal()));
  EXPECT_EQ(pair.phase(), Phase::kCalibration);
  EXPECT_EQ(Vector(pair.theta().begin(), pair.theta().end()), Vector(3));
  EXPECT_FALSE(pair.N_star());
  EXPECT_FALSE(pair.ready_to_predict());
  EXPECT_FALSE(pair.can_predict());
  EXPECT_EQ(pair.events_seen() + pair.inserts_seen() + pair.deletes_seen(), 0u);
  EXPECT_EQ(pair.calibrator().options().quantile, 0.95);
}

TEST(MemoryPair, CalibrateStepPredictsLogsAndLeavesRegretAlone) {
  MemoryPair pair = pair_with(std::make_shared<PrivacyOdometer>(literal()));
  EXPECT_EQ(pair.calibrate_step(Vector{1, 0, 0}, 3), 0);
  // gradient (0 - 3) x; without pairs the direction is its negative, and the first step is whole.
  EXPECT_EQ(pair.calibrator().grad_norms(), Vector{3});
  EXPECT_EQ(pair.theta()[0], 3);
  EXPECT_EQ(pair.calibrator().thetas().back(), (Vector{3, 0, 0}));
  EXPECT_EQ(pair.calibrate_step(Vector{0.5, 0, 0}, 3), 1.5);
  EXPECT_EQ(pair.events_seen(), 2u);
  EXPECT_EQ(pair.inserts_seen(), 2u);
  EXPECT_EQ(pair.avg_regret_empirical(), 0);
}

TEST(MemoryPair, PhasesFollowTheOrderOfSectionSix) {
  for (const OdometerOptions& o : {literal(), certified()}) {
    auto odometer = std::make_shared<PrivacyOdometer>(o);
    MemoryPair pair = pair_with(odometer);
    std::vector<std::pair<Phase, Phase>> changes;
    pair.on_phase([&](Phase from, Phase to) { changes.emplace_back(from, to); });
    Stream stream;
    calibrate(pair, stream, 20);
    EXPECT_THROW(odometer->finalize_with({}, 10000), Error);  // premature
    const CalibrationStats stats = pair.finalize_calibration(0.1);
    EXPECT_EQ(pair.phase(), Phase::kLearning);
    EXPECT_EQ(pair.N_star(), stats.N_star);
    ASSERT_GT(stats.N_star, 20u);
    EXPECT_THROW(odometer->finalize_with(stats, 10000), Error);  // still premature
    EXPECT_FALSE(pair.predict(Vector{1, 0, 0}).ready);
    while (pair.inserts_seen() + 1 < stats.N_star) {
      const auto [x, y] = stream.next();
      pair.insert(x, y);
    }
    EXPECT_EQ(pair.phase(), Phase::kLearning);
    EXPECT_FALSE(pair.can_predict());
    const auto [x, y] = stream.next();
    pair.insert(x, y);
    EXPECT_EQ(pair.phase(), Phase::kInterleaving);
    EXPECT_TRUE(pair.ready_to_predict() && pair.can_predict());
    EXPECT_TRUE(pair.predict(x).ready);
    EXPECT_FALSE(odometer->ready_to_delete());
    EXPECT_NE(
        message_of([&] { pair.erase(x, y); }).find("Odometer not finalized or capacity depleted."),
        std::string::npos);
    odometer->finalize_with(pair.stats(), 100000, pair.inserts_seen());
    EXPECT_TRUE(odometer->ready_to_delete());
    pair.erase(x, y);
    EXPECT_EQ(pair.deletes_seen(), 1u);
    EXPECT_EQ(changes,
              (std::vector<std::pair<Phase, Phase>>{{Phase::kCalibration, Phase::kLearning},
                                                    {Phase::kLearning, Phase::kInterleaving}}));
  }
}

TEST(MemoryPair, IllegalTransitionsNameTheCallThatIsDue) {
  auto odometer = std::make_shared<PrivacyOdometer>(literal());
  MemoryPair pair = pair_with(odometer);
  const Vector x{1, 0, 0};
  EXPECT_NE(message_of([&] { pair.insert(x, 1); }).find("call calibrate_step"), std::string::npos);
  EXPECT_NE(message_of([&] { pair.erase(x, 1); }).find("call finalize_calibration"),
            std::string::npos);
  Stream stream;
  calibrate(pair, stream, 20);
  CalibrationStats stats;
  stats.N_star = 30;
  pair.finalize_calibration(stats);
  EXPECT_NE(message_of([&] { pair.calibrate_step(x, 1); }).find("call insert"), std::string::npos);
  EXPECT_NE(message_of([&] { pair.finalize_calibration(1.0); }).find("call insert"),
            std::string::npos);
  EXPECT_NE(message_of([&] { pair.erase(x, 1); }).find("call insert until ready_to_predict"),
            std::string::npos);
  EXPECT_EQ(pair.events_seen(), 20u);
  warm_up(pair, stream);
  EXPECT_NE(message_of([&] { pair.calibrate_step(x, 1); }).find("revert_to_calibration"),
            std::string::npos);
}

TEST(MemoryPair, TenInsertsToOneDeleteStopCleanlyAtTheCapacity) {
  for (const OdometerOptions& o : {literal(), certified(Guarantee::kSetLevel)}) {
    auto odometer = std::make_shared<PrivacyOdometer>(o);
    MemoryPair pair = pair_with(odometer);
    Stream stream;
    calibrate(pair, stream);
    pair.finalize_calibration(o.gamma_learn);
    warm_up(pair, stream);
    CalibrationStats stats = pair.stats();
    odometer->finalize_with(stats, 3000, pair.inserts_seen());
    ASSERT_TRUE(odometer->ready_to_delete());
    std::uint64_t deleted = 0;
    while (odometer->ready_to_delete() && deleted < 1000) {
      std::pair<Vector, double> last;
      for (int i = 0; i < 10; ++i) last = stream.next(), pair.insert(last.first, last.second);
      pair.erase(last.first, last.second);
      ++deleted;
    }
    EXPECT_EQ(deleted, std::min<std::uint64_t>(1000, odometer->deletion_capacity()));
    if (!odometer->ready_to_delete()) {
      const Vector before(pair.theta().begin(), pair.theta().end());
      const auto [x, y] = stream.next();
      pair.insert(x, y);
      EXPECT_THROW(pair.erase(x, y), Error);
      EXPECT_EQ(pair.deletes_seen(), deleted);
    }
    EXPECT_LE(odometer->eps_spent(), o.eps_total);
  }
}

TEST(MemoryPair, AForkedProcessDeletesNothingWithTheSameNoise) {
  for (const OdometerOptions& o : {literal(), certified(Guarantee::kSetLevel)}) {
    auto odometer = std::make_shared<PrivacyOdometer>(o);
    MemoryPair pair(3, odometer);  // of a key of the operating system
    Stream stream;
    calibrate(pair, stream);
    pair.finalize_calibration(o.gamma_learn);
    const auto first = stream.next();
    pair.insert(first.first, first.second);
    warm_up(pair, stream);
    CalibrationStats stats = pair.stats();
    odometer->finalize_with(stats, 3000, pair.inserts_seen());
    EXPECT_EQ(code_in_fork([&] { pair.erase(first.first, first.second); }),
              ErrorCode::kRngConsumptionViolation);
    pair.erase(first.first, first.second);
  }
}

TEST(MemoryPair, DeletesOnlyWhatIsThereAndAsOftenAsItWasInserted) {
  auto odometer = std::make_shared<PrivacyOdometer>(certified());
  MemoryPair pair = pair_with(odometer);
  Stream stream;
  const Vector x{0.1, 0.2, 0.3};
  pair.calibrate_step(x, 1);
  pair.finalize_calibration(CalibrationStats{});
  pair.insert(x, 1);
  odometer->finalize_with(pair.stats(), 1000000, 1000);
  const Vector before(pair.theta().begin(), pair.theta().end());
  EXPECT_THROW(pair.erase(Vector{0.1, 0.2, 0.4}, 1), Error);
  EXPECT_THROW(pair.erase(x, 2), Error);
  EXPECT_THROW(pair.erase(Vector{1}, 1), Error);
  EXPECT_THROW(pair.erase(Vector{NAN, 0, 0}, 1), Error);
  EXPECT_THROW(pair.insert(Vector{INFINITY, 0, 0}, 1), Error);
  EXPECT_THROW(pair.insert(x, NAN), Error);
  EXPECT_EQ(Vector(pair.theta().begin(), pair.theta().end()), before);
  EXPECT_EQ(odometer->deletes(), 0u);
  pair.erase(x, 1);
  pair.erase(x, 1);
  EXPECT_THROW(pair.erase(x, 1), Error);
  EXPECT_EQ(odometer->deletes(), 2u);
}

TEST(MemoryPair, LearnsAndItsRegretIsBelowTheBound) {
  OdometerOptions unclipped = certified();
  unclipped.enforced.G_f = 16;
  MemoryPair pair = pair_with(std::make_shared<PrivacyOdometer>(unclipped));
  pair.set_comparator({1, -2, 0.5});
  Stream stream;
  calibrate(pair, stream);
  EXPECT_TRUE(pair.calibrator().grad_norms().size() == 500);
  pair.finalize_calibration(0.5);
  EXPECT_TRUE(pair.calibrator().grad_norms().empty());  // forgotten in certified modes
  for (int i = 0; i < 5000; ++i) {
    const auto [x, y] = stream.next();
    pair.insert(x, y);
  }
  const auto metrics = pair.metrics();
  EXPECT_TRUE(std::get<bool>(metrics.at("avg_regret_within_bound")));
  EXPECT_LT(pair.avg_regret_empirical(), 0.1);
  // L-BFGS on the same stream comes close to the parameters that generated it.
  MemoryPair other = pair_with(std::make_shared<PrivacyOdometer>(literal()));
  calibrate(other, stream, 5000);
  EXPECT_NEAR(other.theta()[0], 1, 0.2);
  EXPECT_NEAR(other.theta()[1], -2, 0.2);
  ASSERT_TRUE(other.lbfgs_bounds());
  EXPECT_LE(other.lbfgs_bounds()->c, other.lbfgs_bounds()->C);
}

TEST(MemoryPair, LogsEveryNameOfTheSpecification) {
  auto odometer = std::make_shared<PrivacyOdometer>(literal());
  MemoryPair pair(3, odometer, Calibrator({0.9, 10.0}), Loss::kSquared, NoiseSource::insecure(1));
  Stream stream;
  calibrate(pair, stream);
  pair.finalize_calibration(0.5);
  warm_up(pair, stream);
  odometer->finalize_with(pair.stats(), 10000);
  const auto metrics = pair.metrics();
  EXPECT_EQ(std::get<std::uint64_t>(metrics.at("N_star_theory")), pair.N_star());
  EXPECT_EQ(std::get<std::uint64_t>(metrics.at("m_theory")), odometer->m());
  EXPECT_EQ(std::get<double>(metrics.at("eps_step_theory")), odometer->eps_step());
  EXPECT_EQ(std::get<double>(metrics.at("delta_step_theory")), odometer->delta_step());
  EXPECT_EQ(std::get<double>(metrics.at("sigma_step_theory")), odometer->sigma_step());
  EXPECT_EQ(std::get<double>(metrics.at("G_hat")), pair.stats().constants.G);
  EXPECT_EQ(std::get<double>(metrics.at("D_hat")), pair.stats().constants.D);
  EXPECT_EQ(std::get<double>(metrics.at("c_hat")), pair.stats().constants.c);
  EXPECT_EQ(std::get<double>(metrics.at("C_hat")), pair.stats().constants.C);
  EXPECT_EQ(std::get<double>(metrics.at("avg_regret_empirical")), pair.avg_regret_empirical());
  EXPECT_GT(std::get<double>(metrics.at("avg_regret_bound")), 0);
  EXPECT_EQ(std::get<std::string>(metrics.at("phase")), "INTERLEAVING");
  EXPECT_EQ(std::get<double>(metrics.at("eps_spent")), 0);
  EXPECT_EQ(std::get<std::uint64_t>(metrics.at("capacity_remaining")), odometer->remaining());
  EXPECT_EQ(std::get<double>(metrics.at("gamma_learn")), 0.5);
  EXPECT_EQ(std::get<double>(metrics.at("gamma_priv")), 5);
  EXPECT_EQ(std::get<double>(metrics.at("quantile")), 0.9);
  EXPECT_EQ(std::get<double>(metrics.at("D_cap")), 10);
  EXPECT_EQ(std::get<std::string>(metrics.at("guarantee")), "not certified");
}

TEST(MemoryPair, RevertingKeepsWhatIsSpentAndCalibratesAnew) {
  auto odometer = std::make_shared<PrivacyOdometer>(certified(Guarantee::kSetLevel));
  MemoryPair pair = pair_with(odometer);
  Stream stream;
  calibrate(pair, stream);
  pair.finalize_calibration(0.5);
  warm_up(pair, stream);
  odometer->finalize_with(pair.stats(), 100000, pair.inserts_seen());
  const auto [x, y] = stream.next();
  pair.insert(x, y);
  pair.erase(x, y);
  const double spent = odometer->budget().spent();
  EXPECT_GT(spent, 0);
  pair.revert_to_calibration();
  EXPECT_EQ(pair.phase(), Phase::kCalibration);
  EXPECT_FALSE(pair.can_predict());
  EXPECT_THROW(odometer->recalibrate({}, 100000), Error);
  calibrate(pair, stream);
  pair.finalize_calibration(0.5);
  warm_up(pair, stream);
  EXPECT_TRUE(std::isfinite(std::get<double>(pair.metrics().at("avg_regret_bound"))));
  odometer->recalibrate(pair.stats(), 100000, pair.inserts_seen());
  EXPECT_EQ(std::get<double>(pair.metrics().at("avg_regret_bound")), INFINITY)
      << "none is known for deletes under an earlier calibration";
  EXPECT_EQ(odometer->budget().spent(), spent);
  EXPECT_LE(odometer->rho_step() * double(odometer->remaining()), odometer->budget().left());
}

TEST(MemoryPair, SeveralLearnersCalibrateTogetherThroughTheirHooks) {
  std::vector<std::shared_ptr<PrivacyOdometer>> odometers;
  std::vector<MemoryPair> learners;
  Stream stream;
  int ready = 0;
  for (int i = 0; i < 3; ++i) {
    odometers.push_back(std::make_shared<PrivacyOdometer>(literal()));
    learners.push_back(pair_with(odometers.back()));
    calibrate(learners.back(), stream, 100);
  }
  // The worst of all, so that one N* and one capacity hold for everybody.
  CalibrationStats joint;
  joint.constants = {0, 0, INFINITY, 0};
  for (auto& learner : learners) {
    const auto own = learner.calibrator().finalize(0.5, learner.lbfgs_bounds()).constants;
    joint.constants = {std::max(joint.constants.G, own.G), std::max(joint.constants.D, own.D),
                       std::min(joint.constants.c, own.c), std::max(joint.constants.C, own.C)};
  }
  joint.N_star = sample_complexity(joint.constants, 0.5);
  for (auto& learner : learners) {
    learner.on_phase([&](Phase, Phase to) { ready += to == Phase::kInterleaving; });
    learner.finalize_calibration(joint);
  }
  for (auto& learner : learners) warm_up(learner, stream);
  EXPECT_EQ(ready, 3);
  const auto [x, y] = stream.next();
  for (std::size_t i = 0; i < 3; ++i) {
    odometers[i]->finalize_with(joint, 10000);
    EXPECT_EQ(odometers[i]->m(), odometers[0]->m());
    learners[i].insert(x, y);
  }
  for (auto& learner : learners) learner.erase(x, y);
  for (const auto& learner : learners) EXPECT_EQ(learner.deletes_seen(), 1u);
}

}  // namespace
}  // namespace discreet::unlearning
