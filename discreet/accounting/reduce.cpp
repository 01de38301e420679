#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/accounting/sampling/fixed_size.h"
#include "discreet/base/error.h"

namespace discreet::accounting {
namespace {

[[noreturn]] void cannot_account(const Event& event, std::string_view why) {
  invalid_config("PldAccountant", "cannot account for {}: {}", describe(event), why);
}

void add(std::uint64_t& count, std::uint64_t more) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 63;
  if (more >= kLimit || count >= kLimit - more) {
    fail(ErrorCode::kAccountantOverflow, "PldAccountant", "{} plus {} steps exceed the counter",
         count, more);
  }
  count += more;
}

template <class Steps, class Key>
void merge_sorted(std::vector<Steps>& all, const std::vector<Steps>& more, const Key& key) {
  for (const Steps& steps : more) {
    const auto at = std::lower_bound(all.begin(), all.end(), steps,
                                     [&](const auto& a, const auto& b) { return key(a) < key(b); });
    if (at != all.end() && key(*at) == key(steps)) {
      at->count += steps.count;
    } else {
      all.insert(at, steps);
    }
  }
}

}  // namespace

void Composition::merge(const Composition& more) {
  merge_sorted(gaussians, more.gaussians,
               [](const GaussianSteps& s) { return std::pair(s.rate, s.sigma); });
  merge_sorted(explicits, more.explicits,
               [](const ExplicitSteps& s) { return std::pair(s.epsilon, s.delta); });
}

Composition reduce(const std::vector<RepeatedEvent>& events) {
  std::map<std::pair<double, double>, std::uint64_t> gaussians, explicits;
  std::uint64_t total = 0;
  for (const auto& [event, count] : events) {
    if (count == 0) cannot_account(event, "its count is 0; it must be at least 1");
    if (event.adjacency() != events.front().event.adjacency()) {
      cannot_account(
          event,
          fmt::format(
              "earlier events are under {}; all events of a total must have the same adjacency",
              to_string(events.front().event.adjacency())));
    }
    add(total, count);
    if (const auto* guarantee = std::get_if<Guarantee>(&event.mechanism())) {
      explicits[{guarantee->epsilon, guarantee->delta}] += count;
      continue;
    }
    const std::optional<double> sigma = gaussian_noise_multiplier(event.mechanism());
    if (!sigma) cannot_account(event, "no privacy loss distribution is known for this noise");
    if (std::holds_alternative<NoSampling>(event.sampling())) {
      // Replacing a record moves the sum by up to twice what adding one does.
      const bool replace = event.adjacency() == Adjacency::kReplaceOne;
      gaussians[{1.0, replace ? *sigma / 2 : *sigma}] += count;
    } else if (const auto* poisson = std::get_if<Poisson>(&event.sampling())) {
      gaussians[{poisson->rate, *sigma}] += count;
    } else if (const auto* fixed = std::get_if<FixedSize>(&event.sampling());
               fixed != nullptr && event.adjacency() == Adjacency::kAddRemove) {
      if (fixed->batch == fixed->population) {
        cannot_account(
            event,
            "the batch is the whole population, and a smaller neighbour cannot have such a batch");
      }
      const GaussianSteps steps = fixed_size_add_remove(rounded_up_rate(*fixed), *sigma, count);
      gaussians[{steps.rate, steps.sigma}] += count;
    } else {
      cannot_account(event, "this sampling needs another accountant");
    }
  }
  Composition steps;
  for (const auto& [key, count] : gaussians)
    steps.gaussians.push_back({key.first, key.second, count});
  for (const auto& [key, count] : explicits)
    steps.explicits.push_back({key.first, key.second, count});
  return steps;
}

}  // namespace discreet::accounting
