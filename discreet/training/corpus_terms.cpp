#include "discreet/training/corpus_terms.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "discreet/accounting/accountant.h"
#include "discreet/base/error.h"
#include "discreet/ledger/spend.h"
#include "discreet/mechanism/noise/projection.h"
#include "discreet/numerics/rounding.h"

namespace discreet::training {
namespace {

constexpr const char* kOperator = "corpus";

std::uint64_t whole_below(double x) {
  return static_cast<std::uint64_t>(std::floor(numerics::round_down(x, 2)));
}
std::uint64_t whole_above(double x) {
  return static_cast<std::uint64_t>(std::ceil(numerics::round_up(x, 2)));
}

// What an epoch's terms say of the sampler.
struct SamplerTerms {
  ledger::Terms& out;
  void operator()(const accounting::NoSampling&) const { out.sampler = 0; }
  void operator()(const accounting::Poisson& s) const {
    out.sampler = 1;
    out.rate = std::min(whole_above(s.rate * ledger::kPico), std::uint64_t(ledger::kPico));
  }
  void operator()(const accounting::TruncatedPoisson& s) const {
    (*this)(accounting::Poisson{s.rate});
    out.sampler = 2;
    out.batch = s.batch;
    out.population = s.population;
  }
  void operator()(const accounting::FixedSize& s) const {
    out.sampler = 3;
    out.batch = s.batch;
    out.population = s.population;
  }
  void operator()(const accounting::BallsAndBins& s) const {
    out.sampler = 4;
    out.batch = s.batches;
  }
  void operator()(const accounting::ShuffledEpoch& s) const {
    out.sampler = 5;
    out.batch = s.batches;
  }
};

// The noise of a plan as its records see it: a record that is clipped to norm C, and no further,
// has multiplier s / C. Flat: the least of its blocks. Per block: bounds follow the noise, and what
// counts is its root mean square.
std::uint64_t deviation_of(const RoutePlan& plan, const admission::Policy& policy) {
  std::uint64_t least = ~std::uint64_t{0};
  double squares = 0;
  for (const RouteBlock& b : plan.blocks) {
    const std::uint64_t s = (b.name == "default" ? policy.noise : policy.blocks.at(b.name)).units;
    least = std::min(least, s);
    squares += static_cast<double>(s) * static_cast<double>(s);
  }
  if (policy.clipping == admission::BlockClipping::kFlat || plan.blocks.size() == 1) return least;
  return whole_below(numerics::round_down(
      std::sqrt(squares / static_cast<double>(plan.blocks.size())), plan.blocks.size() + 2));
}

ledger::Family family_of(NoiseFamily family) {
  switch (family) {
    case NoiseFamily::kGaussian: return ledger::Family::kGaussian;
    case NoiseFamily::kRoundedGaussian: return ledger::Family::kRoundedGaussian;
    case NoiseFamily::kLaplace: return ledger::Family::kLaplace;
    case NoiseFamily::kDiscreteGaussian: return ledger::Family::kDiscreteGaussian;
    case NoiseFamily::kSkellam: return ledger::Family::kSkellam;
  }
  invalid_config(kOperator, "the ledger does not support this noise");
}

// Whether `recorded` has no more noise than `used`.
bool is_no_better(const accounting::Mechanism& recorded, const accounting::Mechanism& used) {
  const auto a = accounting::gaussian_noise_multiplier(recorded);
  const auto b = accounting::gaussian_noise_multiplier(used);
  if (a && b) return *a <= *b;
  if (recorded.index() != used.index()) return false;
  // Both are rounded towards less noise, by different operations.
  constexpr double kRounding = 1 + 1e-9;
  if (const auto* l = std::get_if<accounting::Laplace>(&recorded))
    return l->scale <= std::get<accounting::Laplace>(used).scale * kRounding;
  if (const auto* d = std::get_if<accounting::DiscreteGaussian>(&recorded))
    return d->noise_multiplier <=
           std::get<accounting::DiscreteGaussian>(used).noise_multiplier * kRounding;
  if (const auto* s = std::get_if<accounting::Skellam>(&recorded)) {
    // The recorded grid is the same or, rounded to 10^-9, coarser: less noise in steps of it.
    const auto& u = std::get<accounting::Skellam>(used);
    return s->variance <= u.variance * kRounding &&
           s->variance / (s->l2 * s->l2) <= u.variance / (u.l2 * u.l2) * kRounding &&
           s->l1 / s->l2 * (1 + 1e-5) >= u.l1 / u.l2 && s->linf >= s->l2;
  }
  return false;
}

}  // namespace

std::uint64_t CorpusClass::recorded_multiplier() const {
  return amplified ? whole_below(resolution.required_multiplier * ledger::kNano) : 0;
}

ContributionAccount account_of_contribution(const admission::Policy& policy,
                                            const CorpusClass& terms,
                                            const accounting::Mechanism& use, std::uint64_t uses,
                                            double delta) {
  const auto& amplified = policy.classes.at(terms.descriptor.data_class).amplified;
  if (amplified) delta = amplified->delta.from_below();
  const auto accountant =
      accounting::make_accountant(std::string(to_string(policy.accountant)), {});
  const accounting::Sampling sampling =
      amplified
          ? accounting::Sampling(accounting::Poisson{std::min(1.0, amplified->rate.from_above())})
          : accounting::Sampling(accounting::NoSampling{});
  accountant->compose(accounting::Event(use, sampling, accounting::Adjacency::kZeroOut), uses);
  return {accountant->epsilon(delta).epsilon.upper, delta};
}

void require_sampler(const admission::ClassPolicy& own, const std::string& name,
                     const mechanism::SamplingPlan& sampling) {
  if (own.amplified && (sampling.mode != SamplingMode::kPoisson || !sampling.rate ||
                        *sampling.rate > own.amplified->rate.from_above()))
    invalid_config(kOperator,
                   "class {} is amplified for Poisson sampling at rate {}; use that sampling, "
                   "with at most that rate",
                   name, own.amplified->rate.to_text());
}

std::vector<ledger::Terms> epoch_terms(const admission::Policy& policy,
                                       std::span<const CorpusClass> classes,
                                       const mechanism::Mechanism& mechanism) {
  const DpConfig& privacy = mechanism.config().privacy;
  std::map<std::string, ledger::Terms> by_class;
  for (const CorpusClass& c : classes) {
    const std::string& name = c.descriptor.data_class;
    ledger::Terms& t = by_class[name];
    const std::uint64_t deviation = deviation_of(c.resolution.plan, policy);
    t.deviation = t.deviation == 0 ? deviation : std::min(t.deviation, deviation);
    t.admissibility_class = name;
    t.profile = encode(policy.classes.at(name).profile);
    t.family = family_of(privacy.noise_family);
    if (t.family == ledger::Family::kDiscreteGaussian || t.family == ledger::Family::kSkellam)
      t.grid = static_cast<std::uint64_t>(std::ceil(*privacy.noise_discrete * ledger::kNano));
    t.adjacency = mechanism.sampling().adjacency;
    std::visit(SamplerTerms{t}, mechanism.sampling().sampling());
    t.steps = mechanism.sampling().steps_per_epoch;
  }
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const CorpusClass& c = classes[i];
    const admission::Descriptor& d = c.descriptor;
    const ledger::Bound bound = c.amplified
                                    ? ledger::Bound{d.clip_norm.units, ledger::Promise::kAmplified,
                                                    c.recorded_multiplier(), 0, 0}
                                    : ledger::Bound{d.clip_norm.units, ledger::Promise::kWorstCase,
                                                    d.noise_multiplier.units, d.occurrences, 0};
    const auto recorded = ledger::event_of(by_class.at(d.data_class), bound).event.mechanism();
    if (!is_no_better(recorded, mechanism.use_of(i)))
      invalid_config(kOperator, "class {} would be recorded with more noise than its uses have",
                     d.data_class);
  }
  std::vector<ledger::Terms> out;
  for (auto& [name, terms] : by_class) out.push_back(std::move(terms));
  return out;
}

void require_room(std::span<const CorpusClass> classes, const mechanism::Mechanism& mechanism,
                  Injection injection, std::uint64_t steps, std::uint64_t delta_atto) {
  const DpConfig& privacy = mechanism.config().privacy;
  const double delta = static_cast<double>(delta_atto) / ledger::kAtto;
  const auto least = std::ranges::min_element(
      classes, {}, [](const CorpusClass& c) { return c.descriptor.noise_multiplier; });
  const auto promised = accounting::make_accountant("pld");
  promised->compose(
      accounting::Event(accounting::Gaussian{least->descriptor.noise_multiplier.from_below()},
                        accounting::NoSampling{}, accounting::Adjacency::kZeroOut));
  const std::uint64_t slots = injection == Injection::kPerStep ? 1
                              : injection == Injection::kPerMicrobatch
                                  ? privacy.gradient_accumulation_steps
                                  : mechanism.most_records();
  const double left_out =
      mechanism::sampler_delta(privacy.noise_family, mechanism.layout().private_parameters(),
                               2 * steps * slots, promised->epsilon(delta).epsilon.upper);
  if (left_out > 0x1p-50 * delta)
    invalid_config(kOperator,
                   "noise.family must be rounded_gaussian: with this many parameters and steps, "
                   "the error of the continuous sampler does not fit into the ledger's delta");
}

}  // namespace discreet::training
