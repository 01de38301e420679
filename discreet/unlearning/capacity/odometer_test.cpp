#include "discreet/unlearning/capacity/odometer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "discreet/base/error.h"

namespace discreet::unlearning {
namespace {

// The table's base case, certified: logistic, LR^2 = G^2/4, d = 54.
OdometerOptions certified(Accounting accounting, Guarantee guarantee) {
  OdometerOptions o;
  o.accounting = accounting;
  o.guarantee = guarantee;
  o.enforced = {Loss::kLogistic, 54, 0.1, 1, 1, 1, 1};
  return o;
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

TEST(PrivacyOdometer, LiteralNumbersAreTheSpecifications) {
  PrivacyOdometer odometer({});
  EXPECT_FALSE(odometer.ready_to_delete());
  EXPECT_EQ(odometer.status(), "not finalized");
  odometer.finalize_with({}, 100000);
  EXPECT_TRUE(odometer.ready_to_delete());
  EXPECT_EQ(odometer.m(), 34u);
  EXPECT_EQ(odometer.deletion_capacity(), 34u);
  EXPECT_EQ(odometer.eps_step(), 1.0 / 34);
  EXPECT_EQ(odometer.delta_step(), 1e-5 / 34);
  EXPECT_NEAR(odometer.sigma_step(), 1878.476433, 1e-6);
  EXPECT_EQ(odometer.noise_scale(), odometer.sigma_step());
  EXPECT_EQ(to_string(odometer.guarantee()), "not certified");
  EXPECT_EQ(odometer.rho_step(), 0);
}

TEST(PrivacyOdometer, BlocksAtOneMoreThanItsCapacityInEveryMode) {
  for (const auto accounting :
       {Accounting::kSpecification, Accounting::kZcdp, Accounting::kRdp, Accounting::kGdp}) {
    for (const auto guarantee : {Guarantee::kPerRecord, Guarantee::kSetLevel}) {
      OdometerOptions o = certified(accounting, guarantee);
      o.gamma_priv = 0.0015;
      if (accounting == Accounting::kSpecification) o.gamma_priv = 0.05;
      PrivacyOdometer odometer(o);
      EXPECT_THROW(odometer.spend(), Error);
      odometer.finalize_with({}, 100000, 10000);
      const auto m = odometer.deletion_capacity();
      ASSERT_GE(m, 1u);
      for (std::uint64_t i = 0; i < m; ++i) odometer.spend();
      EXPECT_FALSE(odometer.ready_to_delete());
      EXPECT_EQ(odometer.status(), "exhausted");
      EXPECT_NE(message_of([&] {
                  odometer.spend();
                }).find("Odometer not finalized or capacity depleted."),
                std::string::npos);
      EXPECT_EQ(odometer.deletes(), m);
      EXPECT_LE(odometer.eps_spent(), o.eps_total);
      EXPECT_GT(odometer.eps_spent(), 0.999 * o.eps_total);
    }
  }
}

// Between 256 and 512 neighbouring numbers are further apart than half a unit of the budget.
TEST(PrivacyOdometer, FindsALargeBudgetAndEnds) {
  for (const Accounting accounting : {Accounting::kZcdp, Accounting::kGdp}) {
    const double rho = rho_of(accounting, 536, 1e-5);
    EXPECT_LE(eps_of(accounting, rho, 1e-5), 536);
    EXPECT_GT(eps_of(accounting, rho * (1 + 1e-9), 1e-5), 536);
    EXPECT_GT(rho, 256);
    EXPECT_LT(rho, 512);
  }
}

TEST(PrivacyOdometer, CapacityOneIsDegenerateAndSaysWhy) {
  for (const double gamma : {0.005, 0.003}) {  // m = 1 and m = 0
    OdometerOptions o;
    o.gamma_priv = gamma;
    PrivacyOdometer odometer(o);
    odometer.finalize_with({}, 100000);
    EXPECT_EQ(odometer.m(), gamma == 0.005 ? 1u : 0u);
    EXPECT_EQ(odometer.deletion_capacity(), 1u);
    EXPECT_EQ(odometer.status(), "degenerate");
    ASSERT_EQ(odometer.warnings().size(), 2u);
    EXPECT_NE(odometer.warnings()[0].find("regret budget"), std::string::npos);
    EXPECT_EQ(odometer.warnings()[1], "Capacity is 1; next delete forces retrain");
    odometer.spend();
    EXPECT_FALSE(odometer.ready_to_delete());
  }
}

TEST(PrivacyOdometer, CertifiedCapacityZeroIsNotReadyAndAsksForARetrain) {
  OdometerOptions o = certified(Accounting::kZcdp, Guarantee::kPerRecord);
  o.gamma_priv = 1e-9;
  PrivacyOdometer odometer(o);
  odometer.finalize_with({}, 100000, 10000);
  EXPECT_EQ(odometer.deletion_capacity(), 0u);
  EXPECT_FALSE(odometer.ready_to_delete());
  EXPECT_EQ(odometer.status(), "infeasible");
  EXPECT_NE(odometer.warnings().at(0).find("retrain"), std::string::npos);
}

TEST(PrivacyOdometer, CertifiedCapacitiesAreThoseOfTheTable) {
  std::ifstream file(DISCREET_GOLDEN "/literal.json");
  const auto rows = nlohmann::json::parse(file);
  for (std::size_t i = 0; i < 17; ++i) {
    const auto& in = rows[i]["inputs"];
    SCOPED_TRACE(in.dump());
    if (in["D"] == 0) continue;  // a radius of 0 leaves nothing to learn and is rejected
    OdometerOptions o;
    o.accounting = Accounting::kZcdp;
    o.eps_total = in["eps"];
    o.delta_total = in["delta"];
    o.lambda = in["lambda"];
    o.gamma_priv = in["gamma"];
    o.enforced = {Loss::kLogistic, 54, in["lambda"], in["G"], in["D"], in["G"], 1};
    const std::uint64_t T = in["T"];
    if (in["lambda"] == 1e-12) {  // the table's t0 = 1.25e11 is a legal offset
      ASSERT_EQ(step_offset(o.enforced), 125000000000u);
    }
    for (const auto guarantee : {Guarantee::kPerRecord, Guarantee::kSetLevel}) {
      o.guarantee = guarantee;
      PrivacyOdometer odometer(o);
      odometer.finalize_with({}, T, T / 10);
      EXPECT_EQ(odometer.m(), rows[i][guarantee == Guarantee::kSetLevel ? "m_set" : "m_record"]);
    }
  }
}

TEST(PrivacyOdometer, ConversionsMatchTheirClosedForms) {
  EXPECT_NEAR(rho_of(Accounting::kZcdp, 1, 1e-5), 0.020819938, 1e-9);
  EXPECT_NEAR(rho_of(Accounting::kGdp, 1, 1e-5), 0.0359257, 1e-7);
  EXPECT_NEAR(std::sqrt(2 * rho_of(Accounting::kGdp, 1, 1e-5)), 0.2680511, 1e-7);
  const double rdp = rho_of(Accounting::kRdp, 1, 1e-5);
  EXPECT_GT(rdp, rho_of(Accounting::kZcdp, 1, 1e-5));
  EXPECT_LT(rdp, rho_of(Accounting::kGdp, 1, 1e-5));
  for (const auto a : {Accounting::kZcdp, Accounting::kRdp, Accounting::kGdp}) {
    for (const double eps : {0.01, 1.0, 8.0, 30.0}) {
      EXPECT_LE(eps_of(a, rho_of(a, eps, 1e-6), 1e-6), eps);
      EXPECT_GE(eps_of(a, rho_of(a, eps, 1e-6) + 1e-9, 1e-6), eps);
    }
  }
  EXPECT_THROW(rho_of(Accounting::kSpecification, 1, 1e-5), Error);
}

TEST(PrivacyOdometer, TheTwoGammasAreDecoupled) {
  OdometerOptions o;
  o.gamma_learn = 1e-6;
  o.gamma_priv = 0.05;
  PrivacyOdometer odometer(o);
  odometer.finalize_with({}, 100000);
  EXPECT_EQ(odometer.m(), 34u);
}

TEST(PrivacyOdometer, NoiseCoversTheSensitivityAndMoreDeletesNeedMoreNoise) {
  PrivacyOdometer record(certified(Accounting::kZcdp, Guarantee::kPerRecord));
  PrivacyOdometer set(certified(Accounting::kZcdp, Guarantee::kSetLevel));
  record.finalize_with({}, 100000, 10000);
  set.finalize_with({}, 100000, 10000);
  for (PrivacyOdometer* odometer : {&record, &set}) {
    const double sigma = odometer->noise_scale(0.3);
    EXPECT_LE(0.3L * 0.3L / (2.0L * sigma * sigma), (long double)odometer->rho_step());
    EXPECT_NEAR(0.3 * 0.3 / (2 * sigma * sigma), odometer->rho_step(), 1e-12);
    EXPECT_THROW(odometer->noise_scale(), Error);
    EXPECT_THROW(odometer->noise_scale(NAN), Error);
  }
  EXPECT_GT(set.noise_scale(1), record.noise_scale(1));
}

TEST(PrivacyOdometer, GuaranteesAreNamedAndNeverMixed) {
  EXPECT_EQ(to_string(Guarantee::kPerRecord), "per-record");
  EXPECT_EQ(to_string(Guarantee::kSetLevel), "set-level");
  EXPECT_EQ(to_string(Guarantee::kTranscript), "transcript");
  EXPECT_THROW(PrivacyOdometer(certified(Accounting::kZcdp, Guarantee::kNotCertified)), Error);
  OdometerOptions o = certified(Accounting::kZcdp, Guarantee::kSetLevel);
  o.reserve = 0.1;
  EXPECT_THROW(PrivacyOdometer{o}, Error);
  PrivacyOdometer set(certified(Accounting::kZcdp, Guarantee::kSetLevel));
  EXPECT_THROW(set.charge_reserve(1e-9), Error);
  PrivacyOdometer literal({});
  EXPECT_THROW(literal.charge_reserve(1e-9), Error);
  o.guarantee = Guarantee::kTranscript;
  PrivacyOdometer transcript(o);
  transcript.charge_reserve(transcript.reserve().total());
  EXPECT_THROW(transcript.charge_reserve(1e-9), Error);
  EXPECT_LE(transcript.reserve().total() + transcript.budget().total(),
            rho_of(Accounting::kZcdp, 1, 1e-5));
}

TEST(PrivacyOdometer, DeletesMadeBeforeCountAgainstTheSameRegret) {
  PrivacyOdometer odometer(certified(Accounting::kZcdp, Guarantee::kPerRecord));
  odometer.finalize_with({}, 100000, 10000);
  const auto m = odometer.m();
  odometer.spend(600);
  odometer.recalibrate({}, 100000, 10000);
  EXPECT_EQ(odometer.m(), m);
  EXPECT_EQ(odometer.remaining(), m - 600);
  odometer.recalibrate({}, 10000, 1000);  // a stream for which 600 were too many
  EXPECT_FALSE(odometer.ready_to_delete());
}

TEST(PrivacyOdometer, GdpTakesNothingThatIsChosenOnTheWay) {
  PrivacyOdometer odometer(certified(Accounting::kGdp, Guarantee::kSetLevel));
  odometer.finalize_with({}, 100000, 10000);
  odometer.recalibrate({}, 200000, 10000);
  odometer.spend();
  EXPECT_THROW(odometer.recalibrate({}, 100000, 10000), Error);
  EXPECT_THROW(PrivacyOdometer(certified(Accounting::kGdp, Guarantee::kTranscript)), Error);
  OdometerOptions o = certified(Accounting::kGdp, Guarantee::kPerRecord);
  o.reserve = 0.1;
  EXPECT_THROW(PrivacyOdometer{o}, Error);
}

TEST(PrivacyOdometer, RefusesBadInputAndStaysAsItWas) {
  for (const double bad : {0.0, -1.0, double(NAN), double(INFINITY)}) {
    OdometerOptions o;
    o.eps_total = bad;
    EXPECT_THROW(PrivacyOdometer{o}, Error);
    o = {};
    o.gamma_priv = bad;
    EXPECT_THROW(PrivacyOdometer{o}, Error);
    o = certified(Accounting::kZcdp, Guarantee::kPerRecord);
    o.enforced.G_f = bad;
    EXPECT_THROW(PrivacyOdometer{o}, Error);
  }
  PrivacyOdometer odometer({});
  EXPECT_THROW(odometer.finalize_with({}, 0), Error);
  EXPECT_THROW(odometer.recalibrate({}, 10), Error);
  EXPECT_EQ(odometer.status(), "not finalized");
  odometer.finalize_with({}, 100000);
  EXPECT_THROW(odometer.finalize_with({}, 100000), Error);
  EXPECT_THROW(odometer.spend(0), Error);
  EXPECT_THROW(odometer.spend(35), Error);
  EXPECT_EQ(odometer.remaining(), 34u);
  EXPECT_EQ(odometer.eps_spent(), 0);
}

TEST(PrivacyOdometer, RecalibrationNeverMintsBudget) {
  std::mt19937_64 engine(11);
  const auto below = [&](std::uint64_t n) { return engine() % n; };
  // rho_of is the slow part; the sequences start from copies of these.
  std::vector<PrivacyOdometer> starts;
  for (const auto accounting :
       {Accounting::kSpecification, Accounting::kZcdp, Accounting::kRdp, Accounting::kGdp}) {
    for (const auto guarantee :
         {Guarantee::kPerRecord, Guarantee::kSetLevel, Guarantee::kTranscript}) {
      OdometerOptions o = certified(accounting, guarantee);
      if (accounting == Accounting::kGdp && guarantee == Guarantee::kTranscript) continue;
      const bool adaptive = accounting == Accounting::kZcdp || accounting == Accounting::kRdp;
      if (adaptive && guarantee != Guarantee::kSetLevel) o.reserve = 0.2;
      starts.emplace_back(o);
    }
  }
  for (int sequence = 0; sequence < 20000; ++sequence) {
    PrivacyOdometer odometer = starts[below(starts.size())];
    const double total = odometer.budget().total();
    const double reserve = odometer.reserve().total();
    double spent = 0, charged = 0;
    const auto horizon = [&] { return std::uint64_t{1000} << below(12); };
    odometer.finalize_with({}, horizon(), 1 + below(1000));
    for (int call = 0; call < 12; ++call) {
      try {
        switch (below(4)) {
          case 0: odometer.recalibrate({}, horizon(), 1 + below(100000)); break;
          case 1: odometer.charge_reserve(1e-4 * double(below(100))); break;
          default: odometer.spend(1 + below(1 + odometer.deletion_capacity())); break;
        }
      } catch (const Error&) {
      }
      ASSERT_EQ(odometer.budget().total(), total);
      ASSERT_EQ(odometer.reserve().total(), reserve);
      ASSERT_GE(odometer.budget().spent(), spent);
      ASSERT_GE(odometer.reserve().spent(), charged);
      ASSERT_LE(odometer.budget().spent(), total);
      ASSERT_LE(odometer.reserve().spent(), reserve);
      spent = odometer.budget().spent();
      charged = odometer.reserve().spent();
      if (odometer.guarantee() == Guarantee::kSetLevel) {
        // What is promised to future deletes fits what is left.
        ASSERT_LE(odometer.rho_step() * double(odometer.remaining()), odometer.budget().left());
      } else if (odometer.certified()) {
        ASSERT_LE(odometer.rho_step(), total);
      }
    }
  }
}

TEST(RhoBudget, RoundsTotalsDownAndChargesUp) {
  RhoBudget budget(2.5 * RhoBudget::kUnit);
  EXPECT_EQ(budget.total(), 2 * RhoBudget::kUnit);
  EXPECT_EQ(budget.share(2), RhoBudget::kUnit);
  EXPECT_EQ(budget.share(3), 0);
  budget.charge(0.1 * RhoBudget::kUnit);
  EXPECT_EQ(budget.spent(), RhoBudget::kUnit);
  EXPECT_THROW(budget.charge(1.1 * RhoBudget::kUnit), Error);
  budget.charge(RhoBudget::kUnit);
  EXPECT_EQ(budget.left(), 0);
  budget.charge(0);
  EXPECT_THROW(budget.charge(-1), Error);
  EXPECT_THROW(budget.charge(NAN), Error);
  EXPECT_THROW(budget.charge(INFINITY), Error);
  EXPECT_THROW(RhoBudget(NAN), Error);
}

TEST(StreamBounds, CertifiedSampleComplexityIsTheLeastThatFits) {
  StreamConstants k{Loss::kLogistic, 54, 0.1, 1, 1, 1, 1};
  EXPECT_EQ(certified_sample_complexity(k, 0.005), 10370u);
  for (const double gamma : {0.005, 0.05, 0.7, 30.0}) {
    const auto n = certified_sample_complexity(k, gamma);
    EXPECT_LE(learning_regret(k, n) / double(n), gamma);
    if (n > 1) {
      EXPECT_GT(learning_regret(k, n - 1) / double(n - 1), gamma);
    }
  }
}

}  // namespace
}  // namespace discreet::unlearning
