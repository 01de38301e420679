#include "discreet/unlearning/engines/exact_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "discreet/base/error.h"

namespace discreet::unlearning {
namespace {

using Vector = std::vector<double>;
using Ids = std::vector<RecordId>;

ExactOptions options(std::size_t d = 5) {
  ExactOptions o;
  o.dimension = d;
  o.lambda = 0.01;
  o.N = 1000;
  o.n_max = 100000;
  return o;
}

struct Data {
  std::vector<Vector> x;
  Vector y;
  Data(std::size_t n, std::size_t d, std::uint64_t seed) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<double> normal;
    for (std::size_t i = 0; i < n; ++i) {
      x.emplace_back(d);
      for (double& v : x.back()) v = 0.5 * normal(engine);  // some are beyond norm 1
      y.push_back(normal(engine));
    }
  }
};

TEST(ExactEngine, StateIsAFunctionOfTheLiveRecordsBitForBit) {
  const Data data(60, 5, 1);
  std::mt19937_64 random(2);
  for (int run = 0; run < 120; ++run) {
    ExactEngine direct(options()), wandering(options());
    Ids kept, gone;
    for (RecordId id = 0; id < 60; ++id) (random() % 2 ? kept : gone).push_back(id);
    for (const RecordId id : kept) direct.insert(id, data.x[id], data.y[id]);
    Ids order(60);
    for (RecordId id = 0; id < 60; ++id) order[id] = id;
    std::shuffle(order.begin(), order.end(), random);
    for (const RecordId id : order) {
      wandering.insert(id, data.x[id], data.y[id]);
      if (random() % 3 == 0) {  // out and in again
        wandering.erase(Ids{id});
        wandering.insert(id, data.x[id], data.y[id]);
      }
    }
    std::shuffle(gone.begin(), gone.end(), random);
    const std::size_t half = gone.size() / 2;
    for (std::size_t i = 0; i < half; ++i) wandering.erase(Ids{gone[i]});
    wandering.erase(Ids(gone.begin() + half, gone.end()));
    EXPECT_EQ(wandering.state_digest(), direct.state_digest());
    EXPECT_EQ(wandering.publish().parameters, direct.publish().parameters);
    wandering.erase(Ids{kept[0]});
    EXPECT_NE(wandering.state_digest(), direct.state_digest());
  }
}

TEST(ExactEngine, SolvesRidgeRegressionWithinTheCertifiedDistance) {
  for (const std::size_t d : {1, 5, 54, 64}) {
    ExactEngine engine(options(d));
    const Data data(300, d, 4);
    for (RecordId id = 0; id < 300; ++id) engine.insert(id, data.x[id], data.y[id]);
    const Release release = engine.publish();
    // Gradient descent in long double on the records as the engine describes them.
    std::vector<std::vector<long double>> q;
    std::vector<long double> labels, w(d);
    for (std::size_t i = 0; i < 300; ++i) {
      long double norm = 0;
      std::vector<long double> row(d);
      for (std::size_t k = 0; k < d; ++k) {
        row[k] = nearbyintl(std::clamp(data.x[i][k], -1.0, 1.0) * 0x1p20L);
        norm += row[k] * row[k];
      }
      if (norm > 0x1p40L) {
        const long double c = ceill(sqrtl(norm));
        for (auto& v : row) v = std::copysign(floorl(fabsl(v) * 0x1p20L / c), v);
      }
      for (auto& v : row) v /= 0x1p20L;
      q.push_back(row);
      labels.push_back(nearbyintl(std::clamp(data.y[i], -1.0, 1.0) * 0x1p20L) / 0x1p20L);
    }
    for (int step = 0; step < 6000; ++step) {
      std::vector<long double> g(d);
      for (std::size_t k = 0; k < d; ++k) g[k] = 10 * w[k];  // lambda N
      for (std::size_t i = 0; i < 300; ++i) {
        long double r = -labels[i];
        for (std::size_t k = 0; k < d; ++k) r += q[i][k] * w[k];
        for (std::size_t k = 0; k < d; ++k) g[k] += r * q[i][k];
      }
      for (std::size_t k = 0; k < d; ++k) w[k] -= g[k] / 320;
    }
    long double distance = 0;
    for (std::size_t k = 0; k < d; ++k) distance += powl(release.parameters[k] - w[k], 2);
    EXPECT_LE(sqrtl(distance), release.residual_bound);
    EXPECT_LE(engine.distance_bound(release.parameters), 1e-9);
    Vector off = release.parameters;
    off[0] += 1e-3;
    EXPECT_GE(engine.distance_bound(off), 1e-3 - 1e-9);
  }
}

TEST(ExactEngine, AnEmptyModelIsZeroAndExtremeRecordsAreBroughtWithinBounds) {
  ExactEngine engine(options(3));
  EXPECT_EQ(engine.publish().parameters, Vector(3));
  engine.insert(1, Vector{1e300, -1e300, 1e-320}, -1e300);
  engine.insert(2, Vector{0, 0, 0}, 0);
  for (const double v : engine.publish().parameters) EXPECT_LE(std::abs(v), 1);
  engine.erase(Ids{1, 2});
  EXPECT_EQ(engine.state_digest(), ExactEngine(options(3)).state_digest());
}

TEST(ExactEngine, BadRequestsChangeNothing) {
  ExactOptions o = options(2);
  o.n_max = 2;
  ExactEngine engine(o);
  engine.insert(1, Vector{1, 0}, 1);
  const Digest before = engine.state_digest();
  EXPECT_THROW(engine.insert(1, Vector{1, 0}, 1), Error);
  EXPECT_THROW(engine.insert(2, Vector{1}, 1), Error);
  EXPECT_THROW(engine.insert(2, Vector{NAN, 0}, 1), Error);
  EXPECT_THROW(engine.insert(2, Vector{1, 0}, INFINITY), Error);
  EXPECT_THROW(engine.erase(Ids{2}), Error);
  EXPECT_THROW(engine.erase(Ids{1, 1}), Error);
  EXPECT_THROW(engine.erase(Ids{1, 2}), Error);
  EXPECT_THROW(engine.erase(Ids{}), Error);
  EXPECT_EQ(engine.state_digest(), before);
  engine.insert(2, Vector{1, 0}, 1);
  EXPECT_THROW(engine.insert(3, Vector{1, 0}, 1), Error);  // n_max
  engine.erase(Ids{1});
  EXPECT_THROW(engine.erase(Ids{1}), Error);
}

TEST(ExactEngine, RefusesSumsThatWouldLeaveTheirBits) {
  ExactOptions o = options();
  o.n_max = std::uint64_t{1} << 22;  // 2^22 records of 2^40 are 2^62
  EXPECT_THROW(ExactEngine{o}, Error);
  o.n_max -= 1;
  EXPECT_NO_THROW(ExactEngine{o});
  o.R = 0.3;  // not on the grid
  EXPECT_THROW(ExactEngine{o}, Error);
  o = options(65);
  EXPECT_THROW(ExactEngine{o}, Error);
  o = options();
  o.lambda = 1e-30;
  EXPECT_THROW(ExactEngine{o}, Error);
  o.lambda = NAN;
  EXPECT_THROW(ExactEngine{o}, Error);
}

}  // namespace
}  // namespace discreet::unlearning
