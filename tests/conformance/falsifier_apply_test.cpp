// The whole of Apply_v3 and its sampler against its own claim: a model of one parameter, trained
// with and without one record. What is judged is what a run publishes, against the events that the
// mechanism's own accountant holds. Rates as in falsifier_test.cpp.
#include <cmath>
#include <functional>

#include "discreet/config/config_resolve.h"
#include "discreet/mechanism/step/apply.h"
#include "tests/conformance/falsifier_testing.h"

namespace discreet::conformance {
namespace {
using mechanism::Mechanism;

constexpr int kSteps = 2;          // of a trial
constexpr int kTrialsOfARun = 16;  // a run of so many trials, then a new key
constexpr int kRuns = 512;
constexpr double kRate = 0.5, kBatch = 64, kDelta = 0.02;

Config config(bool counts) {
  Config out;
  DpConfig& dp = out.privacy;
  dp.declared_size = 128;
  dp.effective_batch_size = 64;
  dp.noise_multiplier = 1;
  dp.accountant = AccountantKind::kRdp;
  dp.target_epsilon = 60;
  dp.target_steps = kSteps * kTrialsOfARun;
  if (counts) {
    dp.noise_multiplier = 4;
    dp.metrics_release = MetricsRelease::kDp;
    dp.adaptive_noise = 0.7;
  }
  out.run.compute_dtype = ComputeDtype::kFloat64;
  dp = resolve(dp).config;
  return out;
}

// log of the mixture's density over that without the record, if the noise were `factor` times what
// is configured: the record adds 1 to the sum and 1/2 to each count. The factor 1 is the best test
// of a mechanism that is right; one that draws too little shows in that of less noise.
double loss(const mechanism::StepResult& step, const DpConfig& dp, double factor) {
  const double y = step.gradients.values()[0] * kBatch;
  double shift = (y - 0.5) / (dp.noise_multiplier * dp.noise_multiplier);
  const auto count = [&](double fraction) {
    const double centred = (fraction - 0.5) * kBatch;
    shift += 0.5 * (centred - 0.25) / (dp.adaptive_noise * dp.adaptive_noise);
  };
  if (step.released) {
    count(step.released->clip_fraction);
    for (const double fraction : step.released->group_clip_fraction) count(fraction);
  }
  return std::log1p(kRate * std::expm1(shift / (factor * factor)));
}

struct Simulation {
  Losses losses;                           // as configured
  Losses suspicious;                       // as if half of the noise were drawn
  std::optional<accounting::Event> event;  // of a step
};

Simulation simulate(bool counts) {
  const Config c = config(counts);
  const ModelLayout layout({{.name = "w", .shape = {1}}});
  const std::vector<double> gradient = {3};  // clipped to 1
  Simulation out;
  for (int run = 0; run < 2 * kRuns; ++run) {
    const bool with = run % 2 == 0;
    const random::Key master = random::Key::from_seed(static_cast<std::uint64_t>(run) + 1);
    Mechanism m(c, layout, mechanism::mechanism_streams(c.privacy, master), Digest{});
    mechanism::Sampler sampler(m.sampling(), with ? 1 : 0,
                               random::Generator::secure(master.derive(random::stream::kSampling)));
    for (int trial = 0; trial < kTrialsOfARun; ++trial) {
      double total = 0, halved = 0;
      for (int step = 0; step < kSteps; ++step) {
        const std::size_t records = sampler.batch(m.t()).size();
        const mechanism::Microbatch batch =
            PerSampleGradients<double>{records, {std::span(gradient).first(records)}};
        const mechanism::StepResult result = m.apply(std::span(&batch, 1));
        total += loss(result, c.privacy, 1);
        halved += loss(result, c.privacy, 0.5);
      }
      (with ? out.losses.with : out.losses.without).push_back(total);
      (with ? out.suspicious.with : out.suspicious.without).push_back(halved);
    }
    out.event = m.accountant().composed().at(0).event;
    EXPECT_EQ(m.accountant().composed().size(), 1u);
  }
  return out;
}

double epsilon_of(const accounting::Event& event) {
  const auto accountant = accounting::make_accountant("pld");
  accountant->compose(event, kSteps);
  return accountant->epsilon(kDelta).epsilon.upper;
}

accounting::Event altered(const accounting::Event& event,
                          const std::function<void(accounting::GaussianGroups&)>& change) {
  auto groups = std::get<accounting::GaussianGroups>(event.mechanism());
  change(groups);
  return {groups, event.sampling(), event.adjacency()};
}

TEST(FalsifierApply, AStepsClaimStandsAndThatOfTwiceTheNoiseDoesNot) {
  const auto [losses, suspicious, event] = simulate(false);
  const Claims claims("apply", losses, kDelta);
  claims.expect_accountants_stand(*event, kSteps, 4);
  Claims("apply_suspicious", suspicious, kDelta).expect_accountants_stand(*event, kSteps, 4);
  // A mechanism that drew half of what it accounts for would be seen, in the direction that decides
  // the claim.
  const double twice =
      epsilon_of(altered(*event, [](auto& groups) { groups.groups.at(0).noise_multiplier *= 2; }));
  claims.expect_rejected(Direction::kRemove, twice, "half_noise");
}

TEST(FalsifierApply, ReleasedCountsAreInsideTheClaimAndWouldBeSeenOutsideIt) {
  const auto [losses, suspicious, event] = simulate(true);
  const Claims claims("apply_counts", losses, kDelta);
  claims.expect_accountants_stand(*event, kSteps, 4);
  Claims("counts_suspicious", suspicious, kDelta).expect_accountants_stand(*event, kSteps, 4);
  const double without =
      epsilon_of(altered(*event, [](auto& groups) { groups.adaptation.reset(); }));
  claims.expect_rejected(Direction::kRemove, without, "uncounted_counts");
}

}  // namespace
}  // namespace discreet::conformance
