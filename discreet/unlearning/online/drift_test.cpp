#include "discreet/unlearning/online/drift.h"

#include <gtest/gtest.h>

#include <cmath>

#include "discreet/base/error.h"

namespace discreet::unlearning {
namespace {

std::shared_ptr<PrivacyOdometer> odometer_with(double reserve, Guarantee guarantee) {
  OdometerOptions o;
  o.accounting = Accounting::kZcdp;
  o.guarantee = guarantee;
  o.reserve = reserve;
  return std::make_shared<PrivacyOdometer>(o);
}

TEST(Drift, IsSeenInTheWindowWhereTheLossesRise) {
  DriftDetector detector({1, 100, 0.5, 0}, nullptr, NoiseSource::insecure(1));
  for (int i = 0; i < 500; ++i) {
    const auto decision = detector.observe(i < 300 ? 0.2 : 0.9);
    EXPECT_EQ(decision.has_value(), i % 100 == 99);
    if (decision) {
      EXPECT_EQ(*decision, i >= 300);
    }
  }
  EXPECT_EQ(detector.rho(), 0);
}

TEST(Drift, NoisedTestsAreChargedOnceToTheReserve) {
  auto odometer = odometer_with(0.5, Guarantee::kTranscript);
  DriftDetector detector({1, 1000, 0.5, 5}, odometer, NoiseSource::insecure(1));
  EXPECT_NEAR(detector.rho(), 1.0 / (8 * 25), 1e-5);
  EXPECT_GE(detector.rho(), 1.0 / (8 * 25));
  const double spent = odometer->reserve().spent();
  EXPECT_GE(spent, detector.rho());
  // A mean .2 from the threshold is 40 standard deviations of the noise: no false alarm in a life.
  for (int i = 0; i < 5000; ++i) {
    if (const auto decision = detector.observe(i < 3000 ? 0.3 : 0.7)) {
      EXPECT_EQ(*decision, i >= 3000);
    }
  }
  EXPECT_EQ(odometer->reserve().spent(), spent);
}

TEST(Drift, RecalibratesFromWhatIsLeft) {
  auto odometer = odometer_with(0.5, Guarantee::kPerRecord);
  odometer->finalize_with({}, 100000, 10000);
  DriftDetector detector({1, 10, 0.5, 5}, odometer, NoiseSource::insecure(1));
  const double total = odometer->budget().total();
  for (int i = 0; i < 10; ++i) {
    if (detector.observe(INFINITY).value_or(false)) {
      odometer->recalibrate({}, 200000, 20000);
    }
  }
  EXPECT_EQ(odometer->budget().total(), total);
  EXPECT_GT(odometer->reserve().spent(), 0);
}

TEST(Drift, RefusesWhatNobodyPaysForAndBadInput) {
  const auto source = [] { return NoiseSource::insecure(1); };
  EXPECT_THROW(DriftDetector({1, 10, 0.5, 1}, nullptr, source()), Error);
  auto poor = odometer_with(0, Guarantee::kPerRecord);
  EXPECT_THROW(DriftDetector({1, 10, 0.5, 1}, poor, source()), Error);
  EXPECT_EQ(poor->reserve().spent(), 0);
  EXPECT_THROW(DriftDetector({1, 10, 0.5, 1}, odometer_with(0, Guarantee::kSetLevel), source()),
               Error);
  EXPECT_THROW(DriftDetector({0, 10, 0.5, 0}, nullptr, source()), Error);
  EXPECT_THROW(DriftDetector({1, 0, 0.5, 0}, nullptr, source()), Error);
  EXPECT_THROW(DriftDetector({1, 10, 1.5, 0}, nullptr, source()), Error);
  EXPECT_THROW(DriftDetector({1, 10, 0.5, NAN}, nullptr, source()), Error);
  DriftDetector detector({1, 10, 0.5, 0}, nullptr, source());
  EXPECT_THROW(detector.observe(NAN), Error);
}

}  // namespace
}  // namespace discreet::unlearning
