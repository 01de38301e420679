#include "discreet/accounting/event.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "discreet/accounting/transform/subsampled_gaussian_impl.h"
#include "discreet/base/error.h"
#include "discreet/numerics/rounding.h"

namespace discreet::accounting {
namespace {

constexpr const char* kOperator = "Event";

void require_positive(std::string_view what, double value) {
  if (!(value > 0) || !std::isfinite(value))
    invalid_config(kOperator, "{} is {}; it must be a finite number above 0", what, value);
}

void require_rate(double rate) {
  if (!(rate > 0 && rate <= 1))
    invalid_config(kOperator, "the sampling rate is {}; it must be in (0, 1]", rate);
}

void require_count(std::string_view what, std::uint64_t value) {
  if (value == 0) invalid_config(kOperator, "{} is 0; it must be at least 1", what);
}

void require_fits(std::string_view what, std::uint64_t batch, std::uint64_t population) {
  require_count(what, batch);
  if (batch > population)
    invalid_config(kOperator, "{} is {}; it must be at most the population of {}", what, batch,
                   population);
}

struct Check {
  void operator()(const Gaussian& m) const {
    require_positive("the noise multiplier", m.noise_multiplier);
  }
  void operator()(const GaussianGroups& m) const {
    if (m.groups.empty()) invalid_config(kOperator, "there are no groups; expected at least one");
    for (std::size_t g = 0; g < m.groups.size(); ++g) {
      require_positive(fmt::format("the noise multiplier of group {}", g),
                       m.groups[g].noise_multiplier);
      require_positive(fmt::format("the clip bound of group {}", g), m.groups[g].clip);
    }
    if (m.flat_clip) require_positive("the flat clip bound", *m.flat_clip);
    if (m.adaptation) {
      require_count("the number of adaptation counts", m.adaptation->counts);
      require_positive("the deviation of the adaptation counts", m.adaptation->deviation);
    }
    const double sigma = effective_noise_multiplier(m);
    require_positive("the effective noise multiplier of the groups", sigma);
  }
  void operator()(const Laplace& m) const { require_positive("the Laplace scale", m.scale); }
  void operator()(const DiscreteGaussian& m) const {
    require_positive("the noise multiplier", m.noise_multiplier);
    require_positive("the sensitivity in grid units", m.sensitivity);
  }
  void operator()(const RoundedGaussian& m) const {
    require_positive("the noise multiplier", m.noise_multiplier);
  }
  void operator()(const Skellam& m) const {
    require_positive("the Skellam variance", m.variance);
    require_positive("the L1 sensitivity", m.l1);
    require_positive("the L2 sensitivity", m.l2);
    require_positive("the Linf sensitivity", m.linf);
  }
  void operator()(const Guarantee& m) const {
    if (!(m.epsilon >= 0) || !std::isfinite(m.epsilon))
      invalid_config(kOperator, "epsilon is {}; it must be finite and not negative", m.epsilon);
    if (!(m.delta >= 0 && m.delta < 1))
      invalid_config(kOperator, "delta is {}; it must be in [0, 1)", m.delta);
  }
  void operator()(const NoSampling&) const {}
  void operator()(const Poisson& s) const { require_rate(s.rate); }
  void operator()(const TruncatedPoisson& s) const {
    require_rate(s.rate);
    require_fits("the truncated batch", s.batch, s.population);
  }
  void operator()(const FixedSize& s) const { require_fits("the batch", s.batch, s.population); }
  void operator()(const BallsAndBins& s) const {
    require_count("the number of batches", s.batches);
  }
  void operator()(const ShuffledEpoch& s) const {
    require_count("the number of batches", s.batches);
  }
};

bool fits(const Sampling& sampling, Adjacency adjacency) {
  if (std::holds_alternative<NoSampling>(sampling)) return true;
  if (std::holds_alternative<ShuffledEpoch>(sampling)) return adjacency != Adjacency::kAddRemove;
  if (std::holds_alternative<FixedSize>(sampling)) return adjacency != Adjacency::kZeroOut;
  // A record zeroed in place still takes a place from others: no add/remove pair covers that.
  if (std::holds_alternative<TruncatedPoisson>(sampling)) return adjacency == Adjacency::kAddRemove;
  return adjacency != Adjacency::kReplaceOne;
}

}  // namespace

double laplace_scale(double noise_multiplier) noexcept {
  return numerics::round_down(noise_multiplier / std::numbers::sqrt2, 4);
}

Event::Event(Mechanism mechanism, Sampling sampling, Adjacency adjacency)
    : adjacency_(adjacency), sampling_(sampling), mechanism_(std::move(mechanism)) {
  if (adjacency > Adjacency::kReplaceOne) {
    invalid_config(kOperator, "{} is not an adjacency", static_cast<int>(adjacency));
  }
  std::visit(Check{}, mechanism_);
  std::visit(Check{}, sampling_);
  if (std::holds_alternative<Guarantee>(mechanism_) &&
      !std::holds_alternative<NoSampling>(sampling_)) {
    invalid_config(kOperator,
                   "a guarantee cannot be amplified by {} sampling; state the guarantee of the "
                   "sampled mechanism, with sampling none",
                   name(sampling_));
  }
  if (!fits(sampling_, adjacency_)) {
    invalid_config(kOperator, "{} sampling has no guarantee under {}", name(sampling_),
                   to_string(adjacency_));
  }
  // -0 would be a second spelling of 0.
  if (auto* guarantee = std::get_if<Guarantee>(&mechanism_)) {
    guarantee->epsilon += 0.0;
    guarantee->delta += 0.0;
  }
}

std::string_view name(const Mechanism& mechanism) noexcept {
  constexpr std::string_view kNames[] = {"gaussian",          "gaussian_groups",  "laplace",
                                         "discrete_gaussian", "rounded_gaussian", "skellam",
                                         "guarantee"};
  static_assert(std::size(kNames) == std::variant_size_v<Mechanism>);
  return kNames[mechanism.index()];
}

std::string_view name(const Sampling& sampling) noexcept {
  constexpr std::string_view kNames[] = {"none",       "poisson",        "truncated_poisson",
                                         "fixed_size", "balls_and_bins", "shuffled_epoch"};
  static_assert(std::size(kNames) == std::variant_size_v<Sampling>);
  return kNames[sampling.index()];
}

std::string_view to_string(Adjacency adjacency) noexcept {
  switch (adjacency) {
    case Adjacency::kAddRemove: return "add_remove";
    case Adjacency::kZeroOut: return "zero_out";
    case Adjacency::kReplaceOne: return "replace_one";
  }
  return "unknown";
}

std::optional<double> gaussian_noise_multiplier(const Mechanism& mechanism) {
  if (const auto* m = std::get_if<Gaussian>(&mechanism)) return m->noise_multiplier;
  if (const auto* m = std::get_if<RoundedGaussian>(&mechanism)) return m->noise_multiplier;
  if (const auto* m = std::get_if<GaussianGroups>(&mechanism)) {
    return effective_noise_multiplier(*m);
  }
  return std::nullopt;
}

double rounded_up_rate(const FixedSize& sampling) noexcept {
  const double rate =
      static_cast<double>(sampling.batch) / static_cast<double>(sampling.population);
  return std::min(1.0, rate * (1 + 0x1p-50));
}

std::string describe(const Event& event) {
  const bool sampled = !std::holds_alternative<NoSampling>(event.sampling());
  return fmt::format("{}{}{} under {}", sampled ? name(event.sampling()) : "", sampled ? " " : "",
                     name(event.mechanism()), to_string(event.adjacency()));
}

double effective_noise_multiplier(const GaussianGroups& event) {
  if (event.groups.size() == 1 && !event.adaptation &&
      (!event.flat_clip || *event.flat_clip >= event.groups[0].clip)) {
    return event.groups[0].noise_multiplier;
  }
  // Filling the groups with the smallest deviation first is optimal (event.md). Sorted, so that the
  // order of groups does not change the bits. Clips count in units of the flat bound, and a group
  // that is filled adds sigma^-2 whatever its clip: no square of a clip can underflow unnoticed.
  struct Offer {
    double deviation, multiplier, clip;
    auto operator<=>(const Offer&) const = default;
  };
  std::vector<Offer> offers;
  for (const Group& group : event.groups) {
    const double clip = event.flat_clip ? group.clip / *event.flat_clip : 0;
    offers.push_back({group.noise_multiplier * clip, group.noise_multiplier, clip});
  }
  std::sort(offers.begin(), offers.end());
  double left = 1;  // of the squared flat bound
  double precision = 0;
  for (const Offer& offer : offers) {
    const double capacity = offer.clip * offer.clip;
    if (capacity <= left) {
      precision += 1 / (offer.multiplier * offer.multiplier);
      // Rounding must not withhold norm that the constraint allows.
      if (event.flat_clip) left = std::max((left - capacity) * (1 + 4 * kU), 0.0);
    } else {
      precision += left / (offer.deviation * offer.deviation);
      left = 0;
    }
  }
  if (event.adaptation) {
    precision += static_cast<double>(event.adaptation->counts) /
                 (4 * event.adaptation->deviation * event.adaptation->deviation);
  }
  const double rounding = kU * (4 * static_cast<double>(offers.size()) + 16);
  return 1 / std::sqrt(precision * (1 + rounding)) * (1 - 4 * kU);
}

}  // namespace discreet::accounting
