#include "discreet/unlearning/engines/stream_engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "discreet/base/error.h"

namespace discreet::unlearning {
namespace {

using Vector = std::vector<double>;

std::shared_ptr<PrivacyOdometer> odometer_of(const StreamConstants& k, Guarantee guarantee,
                                             double reserve = 0) {
  OdometerOptions o;
  o.eps_total = 8;
  o.lambda = k.lambda;
  o.accounting = Accounting::kZcdp;
  o.guarantee = guarantee;
  o.gamma_priv = 1e12;
  o.enforced = k;
  o.reserve = reserve;
  auto odometer = std::make_shared<PrivacyOdometer>(o);
  odometer->finalize_with({}, 10000, 10);
  return odometer;
}

// The exact maps in long double, with record `skip` a null step.
std::vector<long double> replay(const StreamConstants& k, const std::vector<Vector>& xs,
                                const Vector& ys, std::size_t skip) {
  std::vector<long double> theta(k.dimension);
  const long double t0 = step_offset(k);
  for (std::size_t t = 0; t < xs.size(); ++t) {
    const long double s = t + 1 + t0;
    long double z = 0, norm = 0;
    for (std::size_t i = 0; i < k.dimension; ++i) z += theta[i] * xs[t][i];
    long double slope = k.loss == Loss::kSquared ? z - ys[t] : -ys[t] / (1 + expl(ys[t] * z));
    slope = std::clamp<long double>(slope, -k.G_f / k.R, k.G_f / k.R);
    if (t == skip) slope = 0;
    for (std::size_t i = 0; i < k.dimension; ++i) {
      theta[i] = (1 - 1 / s) * theta[i] - slope / (k.lambda * s) * xs[t][i];
      norm += theta[i] * theta[i];
    }
    norm = sqrtl(norm);
    if (norm > k.D) {
      for (auto& v : theta) v *= k.D / norm;
    }
  }
  return theta;
}

TEST(StreamEngine, NoRecordMovesTheStateFurtherThanStated) {
  std::mt19937_64 engine(3);
  std::normal_distribution<double> normal;
  double closest = 0;
  for (int run = 0; run < 200; ++run) {
    StreamConstants k{run % 2 ? Loss::kSquared : Loss::kLogistic, 4, 0.05, 0.5, 3, 1, 1};
    if (run % 10 == 0) k.G_f = 0.01;  // saturated clipping, where the bound is tight
    StreamEngine stream(odometer_of(k, Guarantee::kPerRecord), NoiseSource::insecure(1));
    const std::size_t n = 20 + engine() % 100;
    std::vector<Vector> xs(n, Vector(4));
    Vector ys(n);
    for (std::size_t t = 0; t < n; ++t) {
      double norm = 0;
      for (double& v : xs[t]) v = normal(engine), norm += v * v;
      for (double& v : xs[t]) v /= std::sqrt(norm) * 1.0000001;
      ys[t] = engine() % 2 ? 1 : -1;
      stream.insert(t, xs[t], ys[t]);
    }
    const auto same = replay(k, xs, ys, n);
    long double drift = 0;
    for (std::size_t i = 0; i < 4; ++i) drift += powl(stream.theta()[i] - same[i], 2);
    EXPECT_LE(sqrtl(drift), 1e-12);
    const auto without = replay(k, xs, ys, engine() % n);
    long double distance = 0;
    for (std::size_t i = 0; i < 4; ++i) distance += powl(stream.theta()[i] - without[i], 2);
    EXPECT_LE(sqrtl(distance), stream.sensitivity());
    closest = std::max(closest, double(sqrtl(distance) / stream.sensitivity()));
  }
  EXPECT_GT(closest, 0.999);
}

TEST(StreamEngine, NoiseOfADeleteCoversTheSensitivity) {
  const StreamConstants k{Loss::kLogistic, 20000, 0.1, 1, 1e6, 1, 1};
  for (const auto guarantee : {Guarantee::kPerRecord, Guarantee::kSetLevel}) {
    for (const std::size_t batch : {std::size_t{1}, std::size_t{9}}) {
      auto odometer = odometer_of(k, guarantee);
      StreamEngine stream(odometer, NoiseSource::insecure(5));
      Vector x(k.dimension);
      x[0] = 1;
      std::vector<RecordId> ids;
      for (RecordId id = 0; id < 10; ++id) {
        stream.insert(id, x, 1);
        if (id < batch) ids.push_back(id);
      }
      const double a = stream.sensitivity();
      EXPECT_NEAR(a, 1 / (0.1 * 12), 1e-6);
      stream.erase(ids);
      double sum = 0;  // of the coordinates that only noise moved: chi-square, 19999 degrees
      for (std::size_t i = 1; i < k.dimension; ++i) sum += stream.theta()[i] * stream.theta()[i];
      double variance = a * a / (2 * odometer->rho_step());
      if (guarantee == Guarantee::kSetLevel) variance *= double(batch);
      EXPECT_NEAR(sum / 19999, variance, 0.06 * variance);  // six standard deviations
      EXPECT_EQ(odometer->deletes(), batch);
    }
  }
}

TEST(StreamEngine, BadRequestsChangeAndSpendNothing) {
  const StreamConstants k{Loss::kLogistic, 2, 0.1, 1, 1, 1, 1};
  auto odometer = odometer_of(k, Guarantee::kSetLevel);
  StreamEngine stream(odometer, NoiseSource::insecure(5));
  stream.insert(1, Vector{1, 0}, 1);
  stream.insert(2, Vector{0, 1}, -1);
  const Vector before(stream.theta().begin(), stream.theta().end());
  using Ids = std::vector<RecordId>;
  EXPECT_THROW(stream.insert(1, Vector{1, 0}, 1), Error);
  EXPECT_THROW(stream.insert(3, Vector{1}, 1), Error);
  EXPECT_THROW(stream.insert(3, Vector{NAN, 1}, 1), Error);
  EXPECT_THROW(stream.insert(3, Vector{1, 1}, 0.5), Error);
  EXPECT_THROW(stream.erase(Ids{7}), Error);
  EXPECT_THROW(stream.erase(Ids{1, 1}), Error);
  EXPECT_THROW(stream.erase(Ids{1, 7}), Error);
  EXPECT_THROW(stream.erase(Ids{}), Error);
  EXPECT_EQ(Vector(stream.theta().begin(), stream.theta().end()), before);
  EXPECT_EQ(odometer->deletes(), 0u);
  EXPECT_EQ(stream.live(), 2u);
  stream.erase(Ids{1});
  EXPECT_THROW(stream.erase(Ids{1}), Error);
  EXPECT_EQ(odometer->deletes(), 1u);
  EXPECT_THROW(
      StreamEngine(std::make_shared<PrivacyOdometer>(OdometerOptions{}), NoiseSource::insecure(1)),
      Error);
}

TEST(StreamEngine, TranscriptReleasesAreNoisedAndCounted) {
  const StreamConstants k{Loss::kLogistic, 2, 0.1, 1, 1, 1, 1};
  auto odometer = odometer_of(k, Guarantee::kTranscript, 0.5);
  StreamEngine stream(odometer, NoiseSource::insecure(5), 2.0);
  for (RecordId id = 0; id < 100; ++id) stream.insert(id, Vector{1, 0}, 1);
  const double rho = std::pow(stream.sensitivity() / 2.0, 2) / 2;
  const Release release = stream.publish();
  EXPECT_EQ(release.sigma, 2.0);
  EXPECT_NE(release.parameters[0], stream.theta()[0]);
  EXPECT_GE(odometer->reserve().spent(), rho);
  EXPECT_LE(odometer->reserve().spent(), rho * 1.0001);
  EXPECT_EQ(release.guarantee.substr(0, 10), "transcript");
  int more = 0;
  try {
    while (more < 1000000) stream.publish(), ++more;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPrivacyBudgetExceeded);
  }
  EXPECT_LE(odometer->reserve().spent(), odometer->reserve().total());
  EXPECT_THROW(StreamEngine(odometer, NoiseSource::insecure(1)), Error);
}

TEST(StreamEngine, ResetLeavesNothingOfWhatWasInserted) {
  const StreamConstants k{Loss::kLogistic, 2, 0.1, 1, 1, 1, 1};
  StreamEngine used(odometer_of(k, Guarantee::kPerRecord), NoiseSource::insecure(5));
  StreamEngine fresh(odometer_of(k, Guarantee::kPerRecord), NoiseSource::insecure(5));
  used.insert(1, Vector{0.3, 1}, 1);
  used.reset();
  EXPECT_EQ(used.live(), 0u);
  for (StreamEngine* stream : {&used, &fresh}) stream->insert(1, Vector{1, 0.5}, -1);
  EXPECT_TRUE(std::equal(used.theta().begin(), used.theta().end(), fresh.theta().begin()));
  EXPECT_EQ(used.sensitivity(), fresh.sensitivity());
}

}  // namespace
}  // namespace discreet::unlearning
