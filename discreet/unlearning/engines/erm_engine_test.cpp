#include "discreet/unlearning/engines/erm_engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "discreet/base/error.h"

namespace discreet::unlearning {
namespace {

using Vector = std::vector<double>;
using Ids = std::vector<RecordId>;

ErmOptions options(Loss loss, std::size_t d = 6) {
  ErmOptions o;
  o.loss = loss;
  o.dimension = d;
  o.N = 500;
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
      double norm = 0;
      for (double& v : x.back()) v = normal(engine), norm += v * v;
      for (double& v : x.back()) v /= std::sqrt(norm) * 1.000001;
      y.push_back(x.back()[0] + 0.3 * normal(engine) > 0 ? 1 : -1);
    }
  }
};

void fill(ErmEngine& engine, const Data& data, std::size_t n) {
  for (RecordId id = 0; id < n; ++id) engine.insert(id, data.x[id], data.y[id]);
}

// |grad F| in long double.
long double exact_gradient(const ErmOptions& o, const Data& data, std::size_t first,
                           std::size_t end, std::span<const double> w) {
  std::vector<long double> g(o.dimension);
  for (std::size_t i = first; i < end; ++i) {
    long double z = 0;
    for (std::size_t k = 0; k < o.dimension; ++k) z += (long double)data.x[i][k] * w[k];
    const long double y = data.y[i];
    const long double slope = o.loss == Loss::kSquared ? z - y : -y / (1 + expl(y * z));
    for (std::size_t k = 0; k < o.dimension; ++k) g[k] += slope * data.x[i][k];
  }
  long double sum = 0;
  for (std::size_t k = 0; k < o.dimension; ++k) {
    sum += powl(g[k] / o.N + (long double)o.lambda * w[k], 2);
  }
  return sqrtl(sum);
}

double distance(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

TEST(ErmEngine, AStepIsCertifiedWithoutAnotherPassAndNeverBelowTheTruth) {
  double tightest = 0;
  for (const Loss loss : {Loss::kSquared, Loss::kLogistic}) {
    for (const double scale : {1.0, 20.0}) {
      ErmOptions o = options(loss);
      o.R = scale;
      Data data(3000, o.dimension, 5);
      for (Vector& x : data.x) {
        for (double& v : x) v *= scale;
      }
      ErmEngine engine(o, NoiseSource::insecure(1));
      fill(engine, data, 500);
      EXPECT_FALSE(engine.newton_step()) << "there is no Hessian yet";
      engine.refine();
      std::size_t first = 0, end = 500;
      for (int round = 0; round < 60; ++round) {
        for (int i = 0; i < 10; ++i, ++end) engine.insert(end, data.x[end], data.y[end]);
        Ids gone;
        for (int i = 0; i < 1 + round % 7; ++i) gone.push_back(first++);
        engine.erase(gone);
        for (int steps = 0; steps < 3; ++steps) {
          const auto bound = engine.newton_step();
          if (!bound) break;
          const auto truth = static_cast<double>(exact_gradient(o, data, first, end, engine.w()));
          EXPECT_LE(truth, *bound) << round << " " << steps;
          if (*bound > 1e-9) tightest = std::max(tightest, truth / *bound);
        }
      }
    }
  }
  EXPECT_GT(tightest, 1e-3) << "the bound is not idle";
}

// Contradicting records are inserted, one direction after the other, and deleted in the same order.
// The parameters return to where the Hessian was computed, but the inserts and deletes left traces
// in it.
TEST(ErmEngine, AStepIsCertifiedWhenRecordsCameAndWentFarFromTheAnchor) {
  ErmOptions o = options(Loss::kLogistic);
  o.lambda = 0.02;
  Data live(480, o.dimension, 5);
  for (std::size_t i = 0; i < 480; ++i) {
    live.y[i] = std::accumulate(live.x[i].begin(), live.x[i].end(), 0.0) > 0 ? 1 : -1;
  }
  ErmEngine engine(o, NoiseSource::insecure(1));
  fill(engine, live, 480);
  engine.refine();
  engine.erase(Ids{479});
  live.x.pop_back(), live.y.pop_back();
  const auto solve = [&] {
    for (int steps = 0; steps < 10; ++steps) {
      const auto bound = engine.newton_step();
      ASSERT_TRUE(bound);
      const auto truth = exact_gradient(o, live, 0, live.x.size(), engine.w());
      ASSERT_LE(static_cast<double>(truth), *bound) << live.x.size() << " " << steps;
    }
  };
  solve();
  RecordId next = 480;
  for (std::size_t axis = 0; axis < o.dimension; ++axis) {
    Vector x(o.dimension);
    x[axis] = 1;
    for (int i = 0; i < 40; ++i) {
      engine.insert(next++, x, -1);
      live.x.push_back(x), live.y.push_back(-1);
    }
    solve();
  }
  for (RecordId id = 480; id < next; id += 40) {
    Ids gone(40);
    std::iota(gone.begin(), gone.end(), id);
    engine.erase(gone);
    live.x.erase(live.x.begin() + 479, live.x.begin() + 519);
    live.y.erase(live.y.begin() + 479, live.y.begin() + 519);
    solve();
  }
}

// As above, but the records have another curvature when they are deleted than when they were
// inserted, and the solution returns to the anchor exactly: neither the step nor the distance from
// the anchor tells how wrong the Hessian is.
TEST(ErmEngine, AStepBackToTheAnchorIsCertifiedWithTheTracesOfWhatCameAndWent) {
  ErmOptions o = options(Loss::kLogistic);
  o.lambda = 0.02;
  Data live(480, o.dimension, 5);
  live.x.emplace_back(o.dimension), live.y.push_back(1);  // it moves nothing
  ErmEngine engine(o, NoiseSource::insecure(1));
  fill(engine, live, 481);
  engine.refine();
  engine.erase(Ids{480});
  live.x.pop_back(), live.y.pop_back();
  double least = 1;
  const auto solve = [&] {
    for (int steps = 0; steps < 25; ++steps) {
      const auto bound = engine.newton_step();
      ASSERT_TRUE(bound);
      const auto truth = exact_gradient(o, live, 0, live.x.size(), engine.w());
      ASSERT_LE(static_cast<double>(truth), *bound) << live.x.size() << " " << steps;
      least = std::min(least, *bound);
    }
  };
  for (int round = 0; round < 3; ++round) {
    Ids group(55);
    std::iota(group.begin(), group.end(), 1000 * (round + 1));
    Vector x(o.dimension);
    x[1] = 1;
    for (const RecordId id : group) {
      engine.insert(id, x, 1);
      live.x.push_back(x), live.y.push_back(1);
    }
    solve();
    engine.erase(group);
    live.x.resize(480), live.y.resize(480);
    solve();
  }
  EXPECT_LT(least, 1e-9) << "the steps converge";
}

// The same with nothing but inserts: some move the parameters, others, which come far from the
// anchor, bring them back to it.
TEST(ErmEngine, AStepBackToTheAnchorIsCertifiedWithWhatCameFarFromIt) {
  ErmOptions o = options(Loss::kLogistic);
  o.lambda = 0.02;
  Data live(1700, o.dimension, 5);
  for (Vector& x : live.x) x[1] = 0;
  live.x.emplace_back(o.dimension), live.y.push_back(1);
  ErmEngine engine(o, NoiseSource::insecure(1));
  fill(engine, live, 1701);
  engine.refine();
  engine.erase(Ids{1700});
  live.x.pop_back(), live.y.pop_back();
  Vector x(o.dimension);
  x[1] = 1;
  RecordId next = 2000;
  for (const double label : {1.0, -1.0}) {
    for (int i = 0; i < 200; ++i) {
      engine.insert(next++, x, label);
      live.x.push_back(x), live.y.push_back(label);
    }
    for (int steps = 0; steps < 25; ++steps) {
      const auto bound = engine.newton_step();
      ASSERT_TRUE(bound);
      const auto truth = exact_gradient(o, live, 0, live.x.size(), engine.w());
      ASSERT_LE(static_cast<double>(truth), *bound) << label << " " << steps;
    }
    if (label > 0) {
      EXPECT_GT(engine.w()[1], 1.5);
    }
  }
  EXPECT_NEAR(engine.w()[1], 0, 1e-6);
}

TEST(ErmEngine, InsertsBetweenDeletesLeaveItCertified) {
  for (const Loss loss : {Loss::kSquared, Loss::kLogistic}) {
    const ErmOptions o = options(loss);
    const Data data(3000, o.dimension, 6);
    ErmEngine engine(o, NoiseSource::insecure(1));
    fill(engine, data, 500);
    engine.refine();
    std::size_t first = 0, end = 500;
    for (int round = 0; round < 200; ++round) {
      for (int i = 0; i < 10; ++i, ++end) engine.insert(end, data.x[end], data.y[end]);
      const RecordId id = first++;
      engine.erase({&id, 1});
      engine.refine();
      EXPECT_LE(static_cast<double>(exact_gradient(o, data, first, end, engine.w())), o.tau);
    }
  }
}

TEST(ErmEngine, GradientBoundIsNeverBelowTheTruthAndCloseToIt) {
  for (const Loss loss : {Loss::kSquared, Loss::kLogistic}) {
    for (const std::size_t n : {1, 255, 1000}) {
      ErmOptions o = options(loss, 20);
      o.tau = 1e-11;
      const Data data(n, 20, n);
      ErmEngine engine(o, NoiseSource::insecure(1));
      fill(engine, data, n);
      for (int when = 0; when < 2; ++when) {  // far from the solution, and at it
        const long double truth = exact_gradient(o, data, 0, n, engine.w());
        EXPECT_GE(engine.gradient_bound(), truth);
        EXPECT_LE(engine.gradient_bound(), truth * 1.0001L + 1e-11L);
        engine.refine();
      }
      EXPECT_LE(engine.gradient_bound(), o.tau);
    }
  }
}

TEST(ErmEngine, DeletesLeaveItWithinTheCertifiedDistanceOfRetraining) {
  for (const Loss loss : {Loss::kSquared, Loss::kLogistic}) {
    const ErmOptions o = options(loss);
    const Data data(600, 6, 8);
    ErmEngine engine(o, NoiseSource::insecure(1));
    fill(engine, data, 600);
    engine.refine();
    Ids batch;
    for (RecordId id = 0; id < 5; ++id) {
      engine.erase(Ids{id});
      engine.refine();
    }
    for (RecordId id = 5; id < 300; ++id) batch.push_back(id);
    engine.erase(batch);
    engine.refine();
    ErmEngine retrained(o, NoiseSource::insecure(2));
    for (RecordId id = 300; id < 600; ++id) retrained.insert(id, data.x[id], data.y[id]);
    retrained.refine();
    EXPECT_LE(distance(engine.w(), retrained.w()), engine.sensitivity());
    EXPECT_LE(exact_gradient(o, data, 300, 600, engine.w()), o.tau);
    EXPECT_EQ(engine.live(), 300u);
  }
}

TEST(ErmEngine, TranscriptSensitivityCoversOneRecordMore) {
  for (const Loss loss : {Loss::kSquared, Loss::kLogistic}) {
    ErmOptions o = options(loss);
    o.guarantee = Guarantee::kTranscript;
    o.n_max = 600;
    const Data data(600, 6, 8);
    double largest = 0;
    ErmEngine all(o, NoiseSource::insecure(1));
    fill(all, data, 600);
    all.refine();
    const Vector w(all.w().begin(), all.w().end());
    for (RecordId id = 0; id < 600; id += 20) {
      all.erase(Ids{id});
      all.refine();
      largest = std::max(largest, distance(all.w(), w));
      all.insert(id, data.x[id], data.y[id]);
    }
    EXPECT_LE(largest, all.sensitivity());
    EXPECT_GT(largest, (loss == Loss::kSquared ? 1e-4 : 0.01) * all.sensitivity());
  }
}

TEST(ErmEngine, ReleasesAreNoisedCountedAndNamed) {
  ErmOptions o = options(Loss::kLogistic);
  const Data data(100, 6, 8);
  ErmEngine engine(o, NoiseSource::insecure(1));
  fill(engine, data, 100);
  EXPECT_NEAR(engine.sensitivity(), 2e-6, 1e-12);
  EXPECT_EQ(engine.releases_left(), 10409u);
  const Release first = engine.publish(), second = engine.publish();
  EXPECT_EQ(engine.releases_left(), 10407u);
  EXPECT_EQ(first.sigma, 1e-3);
  EXPECT_EQ(first.residual_bound, 1e-9 / 1e-3);
  EXPECT_NE(first.parameters, second.parameters);
  EXPECT_LT(distance(first.parameters, engine.w()), 1e-3 * 6);
  EXPECT_EQ(first.guarantee.substr(0, 10), "per-record");
  o.accounting = Accounting::kGdp;
  EXPECT_EQ(ErmEngine(o, NoiseSource::insecure(1)).releases_left(), 17962u);
  o.sigma = 1e-6;
  o.eps_total = 10;
  ErmEngine noisy(o, NoiseSource::insecure(1));
  fill(noisy, data, 100);
  const std::uint64_t left = noisy.releases_left();
  for (std::uint64_t i = 0; i < left; ++i) noisy.publish();
  EXPECT_THROW(noisy.publish(), Error);
  noisy.erase(Ids{3});  // deletes continue
  EXPECT_LE(noisy.budget().spent(), noisy.budget().total());
}

TEST(ErmEngine, BadRequestsChangeNothing) {
  ErmOptions o = options(Loss::kLogistic, 2);
  o.n_max = 2;
  ErmEngine engine(o, NoiseSource::insecure(1));
  engine.insert(1, Vector{1, 0}, 1);
  EXPECT_THROW(engine.insert(1, Vector{1, 0}, 1), Error);
  EXPECT_THROW(engine.insert(2, Vector{1, 0}, 0), Error);
  EXPECT_THROW(engine.insert(2, Vector{NAN, 0}, 1), Error);
  EXPECT_THROW(engine.insert(2, Vector{1}, 1), Error);
  EXPECT_THROW(engine.erase(Ids{2}), Error);
  EXPECT_THROW(engine.erase(Ids{1, 1}), Error);
  EXPECT_THROW(engine.erase(Ids{}), Error);
  EXPECT_EQ(engine.live(), 1u);
  engine.insert(2, Vector{1e300, 1e300}, -1);
  EXPECT_THROW(engine.insert(3, Vector{1, 0}, 1), Error);
  engine.erase(Ids{1, 2});
  engine.refine();
  EXPECT_LE(distance(engine.w(), Vector(2)), 1e-6);
  o.tau = 1e-30;
  ErmEngine impossible(o, NoiseSource::insecure(1));
  impossible.insert(1, Vector{1, 0}, 1);
  EXPECT_THROW(impossible.publish(), Error);
  EXPECT_EQ(impossible.budget().spent(), 0);
  o.tau = 0;
  EXPECT_THROW(ErmEngine(o, NoiseSource::insecure(1)), Error);
}

}  // namespace
}  // namespace discreet::unlearning
