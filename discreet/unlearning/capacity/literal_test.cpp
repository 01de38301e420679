#include "discreet/unlearning/capacity/literal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "discreet/base/error.h"

namespace discreet::unlearning {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

LiteralTarget base() { return {1.0, 1e-5, 0.1, 0.05, 100000, 0.05}; }

void expect_near(double ours, double reference, const char* what) {
  EXPECT_LE(std::abs(ours - reference), 1e-14 * std::abs(reference)) << what;
}

TEST(Literal, EveryRowOfTheTableHasItsIndependentValue) {
  std::ifstream file(DISCREET_GOLDEN "/literal.json");
  const auto rows = nlohmann::json::parse(file);
  ASSERT_EQ(rows.size(), 417u);
  for (const auto& row : rows) {
    const auto& in = row["inputs"];
    SCOPED_TRACE(in.dump());
    const Constants k{in["G"], in["D"], in["c"], in["C"]};
    const LiteralTarget t{in["eps"],     in["delta"], in["lambda"],
                          in["delta_B"], in["T"],     in["gamma"]};
    const LiteralCapacity found = literal_capacity(k, t);
    EXPECT_EQ(std::to_string(sample_complexity(k, t.gamma)), row["N_star"]);
    EXPECT_EQ(found.m, row["m"].get<std::uint64_t>());
    EXPECT_EQ(found.capacity, std::max<std::uint64_t>(1, row["m"]));
    expect_near(insertion_regret(k, t), row["R_ins"], "R_ins");
    expect_near(deletion_regret(k, t, found.capacity), row["R_del"], "R_del");
    expect_near(found.eps_step, row["eps_step"], "eps_step");
    expect_near(found.delta_step, row["delta_step"], "delta_step");
    expect_near(found.sigma_step, row["sigma_step"], "sigma_step");
  }
}

TEST(Literal, NoDeletesCostNoRegretAndOneDeleteIsTheFirstThatCounts) {
  EXPECT_EQ(deletion_regret({}, base(), 0), 0);
  EXPECT_NEAR(deletion_regret({}, base(), 1), 118.5885673, 1e-6);
}

TEST(Literal, CapacityZeroStillPermitsOneDeleteAsTheSpecificationSays) {
  LiteralTarget t = base();
  t.gamma = 0.003;
  const LiteralCapacity found = literal_capacity({}, t);
  EXPECT_EQ(found.m, 0u);
  EXPECT_EQ(found.capacity, 1u);
  EXPECT_EQ(found.eps_step, 1.0);
}

TEST(Literal, SampleComplexityIsPositiveMonotoneInGammaAndSaturates) {
  std::uint64_t before = kCountLimit;
  for (double gamma = 1e-12; gamma < 1e9; gamma *= 1.7) {
    const std::uint64_t n = sample_complexity({}, gamma);
    EXPECT_GE(n, 1u);
    EXPECT_LE(n, before);
    before = n;
  }
  EXPECT_EQ(sample_complexity({}, 1e-10), kCountLimit);
  EXPECT_EQ(sample_complexity({}, std::numeric_limits<double>::denorm_min()), kCountLimit);
  EXPECT_EQ(sample_complexity({1e308, 1e308, 1, 1}, 1), kCountLimit);
  EXPECT_EQ(sample_complexity({0, 1e308, 1e308, 1e308}, 1), kCountLimit);
  EXPECT_EQ(sample_complexity({}, 1e308), 1u);
}

TEST(Literal, OverflowingRegretMeansNoCapacity) {
  EXPECT_EQ(literal_capacity({1e308, 1e308, 1, 1}, base()).m, 0u);
  LiteralTarget t = base();
  t.T = kCountLimit;
  t.gamma = 1e300;
  EXPECT_EQ(literal_capacity({}, t).m, kCountLimit);
}

TEST(Literal, RefusesWhatTheFormulasDoNotTake) {
  for (const double bad : {0.0, -1.0, kNan, kInf}) {
    for (double LiteralTarget::*field :
         {&LiteralTarget::eps_total, &LiteralTarget::lambda, &LiteralTarget::gamma}) {
      LiteralTarget t = base();
      t.*field = bad;
      EXPECT_THROW(literal_capacity({}, t), Error);
    }
    EXPECT_THROW(sample_complexity({}, bad), Error);
  }
  for (const double bad : {0.0, 1.0, -0.1, 1.5, kNan}) {
    for (double LiteralTarget::*field : {&LiteralTarget::delta_total, &LiteralTarget::delta_B}) {
      LiteralTarget t = base();
      t.*field = bad;
      EXPECT_THROW(literal_capacity({}, t), Error);
    }
  }
  for (double Constants::*field : {&Constants::G, &Constants::D, &Constants::c, &Constants::C}) {
    for (const double bad : {-1.0, kNan, kInf}) {
      Constants k;
      k.*field = bad;
      EXPECT_THROW(literal_capacity(k, base()), Error);
    }
  }
  LiteralTarget t = base();
  t.T = 0;
  EXPECT_THROW(literal_capacity({}, t), Error);
}

}  // namespace
}  // namespace discreet::unlearning
