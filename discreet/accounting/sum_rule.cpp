#include "discreet/accounting/sum_rule.h"

#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <variant>

#include "discreet/accounting/renyi/rdp_conversion.h"
#include "discreet/accounting/tally_impl.h"
#include "discreet/base/error.h"

namespace discreet::accounting {

SumRuleEpsilon rdp_sum_rule_epsilon(const std::vector<RepeatedEvent>& events, double delta) {
  if (!(delta > 0 && delta < 1)) {
    invalid_config("rdp_sum_rule_epsilon", "delta is {}; it must be in (0, 1)", delta);
  }
  struct Part {
    std::unique_ptr<RenyiCurve> curve;
    double count;
  };
  std::vector<Part> parts;
  for (const auto& [event, count] : events) {
    const auto* poisson = std::get_if<Poisson>(&event.sampling());
    if (poisson == nullptr && !std::holds_alternative<NoSampling>(event.sampling())) {
      refuse("rdp_sum_rule_epsilon", event);
    }
    const double rate = poisson == nullptr ? 1 : poisson->rate;
    const double size = event.adjacency() == Adjacency::kReplaceOne ? 2 : 1;
    const double n = static_cast<double>(count);
    const auto add = [&](double sigma) {
      parts.push_back({poisson_gaussian_curve(rate, sigma / size), n});
    };
    if (const auto* one = std::get_if<Gaussian>(&event.mechanism())) {
      add(one->noise_multiplier);
    } else if (const auto* groups = std::get_if<GaussianGroups>(&event.mechanism())) {
      for (const auto& group : groups->groups) add(group.noise_multiplier);
      if (groups->adaptation) {
        add(2 * groups->adaptation->deviation /
            std::sqrt(static_cast<double>(groups->adaptation->counts)));
      }
    } else {
      refuse("rdp_sum_rule_epsilon", event);
    }
  }
  if (parts.empty()) return SumRuleEpsilon(0);
  const MomentSum sum = [&](double order) {
    LogMoment total{{0, 0}, 0};
    for (const auto& part : parts) {
      total.value.upper += part.count * part.curve->at(order).value.upper;
    }
    return total;
  };
  return SumRuleEpsilon(epsilon_on_grid(sum, delta).epsilon);
}

}  // namespace discreet::accounting
