#include "discreet/accounting/renyi/renyi_events_impl.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "discreet/accounting/renyi/rdp_impl.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {

using numerics::exp;
using numerics::expm1;
using numerics::log;
using numerics::log1p;

namespace {

class RandomizedResponse final : public RenyiCurve {
 public:
  explicit RandomizedResponse(double epsilon) : epsilon_(epsilon) {}

 private:
  LogMoment evaluate(double order) override {
    const double e = epsilon_;
    const double c = order - 1;
    const double slope = e * (1 - 2 / (exp((2 * order - 1) * e) + 1));
    if (order * e < 1) {
      const double value = log1p(expm1(order * e) * -expm1(-c * e) / (2 + expm1(e)));
      return {{value * (1 - 24 * kUnit), value * (1 + 24 * kUnit)}, slope};
    }
    const double value = c * e + log1p(exp(-(c + order) * e)) - log1p(exp(-e));
    const double error = 12 * kUnit * (c * e + 1);
    return {{std::max(0.0, value - error), value + error}, slope};
  }
  double epsilon_;
};

}  // namespace

std::unique_ptr<RenyiCurve> renyi_curve(std::string_view accountant, const Event& event) {
  const Mechanism& mechanism = event.mechanism();
  const Sampling& sampling = event.sampling();
  const std::optional<double> gaussian = gaussian_noise_multiplier(mechanism);
  if (const auto* m = std::get_if<Guarantee>(&mechanism)) {
    return std::make_unique<RandomizedResponse>(m->epsilon);
  }
  if (const auto* fixed = std::get_if<FixedSize>(&sampling)) {
    if (!gaussian) refuse(accountant, event);
    // The neighbour with one record less has no batch of that size.
    const bool whole = fixed->batch == fixed->population;
    if (whole && event.adjacency() == Adjacency::kAddRemove) refuse(accountant, event);
    const double rate = rounded_up_rate(*fixed);
    return event.adjacency() == Adjacency::kReplaceOne
               ? fixed_size_replace_curve(rate, *gaussian)
               : fixed_size_add_remove_curve(rate, *gaussian);
  }
  double rate = 1;
  if (const auto* poisson = std::get_if<Poisson>(&sampling)) {
    rate = poisson->rate;
  } else if (std::holds_alternative<ShuffledEpoch>(sampling)) {
    if (!gaussian) refuse(accountant, event);
  } else if (!std::holds_alternative<NoSampling>(sampling)) {
    refuse(accountant, event);
  }
  // Replacing a record moves the sum by at most twice its bound.
  const double size = event.adjacency() == Adjacency::kReplaceOne ? 2 : 1;
  if (gaussian) return poisson_gaussian_curve(rate, *gaussian / size);
  if (const auto* m = std::get_if<DiscreteGaussian>(&mechanism)) {
    return poisson_discrete_gaussian_curve(rate, m->noise_multiplier / size);
  }
  if (const auto* m = std::get_if<Laplace>(&mechanism)) {
    return poisson_laplace_curve(rate, m->scale / size);
  }
  if (const auto* m = std::get_if<Skellam>(&mechanism)) {
    return poisson_skellam_curve(rate, m->variance, m->l1 * size, m->l2 * size);
  }
  refuse(accountant, event);
}

RenyiComposition::RenyiComposition(std::string_view accountant, const EventCounts& events,
                                   bool log_space)
    : log_space_(log_space) {
  double log_safe = 0;
  for (const auto& [event, count] : events) {
    // Counts beyond 2^53 round to the nearest binary64; step above.
    double n = static_cast<double>(count);
    if (count > (std::uint64_t{1} << 53)) n *= 1 + 0x1p-52;
    parts_.push_back({renyi_curve(accountant, event), n});
    if (const auto* m = std::get_if<Guarantee>(&event.mechanism())) {
      log_safe += n * log1p(-m->delta) * (1 + 8 * kUnit);
    }
  }
  leak_ = log_safe < 0 ? std::min(1.0, -expm1(log_safe) * (1 + 16 * kUnit)) : 0;
}

LogMoment RenyiComposition::at(double order) {
  const double rounding = 1 + 4 * kUnit * static_cast<double>(parts_.size() + 2);
  LogMoment total{{0, 0}, 0};
  double peak = -kInfinity;  // of the logarithms
  std::vector<double> logs;
  for (const auto& part : parts_) {
    const LogMoment one = part.curve->at(order);
    total.value.lower += part.count * one.value.lower;
    total.slope += part.count * one.slope;
    if (log_space_) {
      logs.push_back(log(part.count) + log(one.value.upper));
      peak = std::max(peak, logs.back());
    } else {
      total.value.upper += part.count * one.value.upper;
    }
  }
  if (log_space_ && std::isfinite(peak)) {
    double sum = 0;
    for (const double value : logs) sum += exp(value - peak);
    // An error e of a logarithm is a factor 1 + e; logarithms here are below 1500 in size.
    total.value.upper = exp(peak + log(sum)) * (1 + 8e-13);
  } else if (log_space_) {
    total.value.upper = peak < 0 ? 0 : kInfinity;
  }
  total.value.upper *= rounding;
  total.value.lower = std::max(0.0, total.value.lower * (2 - rounding));
  return total;
}

double renyi_epsilon(RenyiComposition& composition, double delta) {
  const double leak = composition.leak();
  if (!(leak < delta)) return kInfinity;
  const double rest = leak > 0 ? (delta - leak) / (1 - leak) * (1 - 4 * kUnit) : delta;
  return minimise_epsilon([&](double order) { return composition.at(order); }, rest).epsilon;
}

double renyi_delta(RenyiComposition& composition, double epsilon) {
  const double rest = minimise_delta([&](double order) { return composition.at(order); }, epsilon);
  const double leak = composition.leak();
  return leak > 0 ? std::min(1.0, (leak + (1 - leak) * rest) * (1 + 4 * kUnit)) : rest;
}

}  // namespace discreet::accounting
