#include "discreet/admission/contributors.h"

#include <algorithm>
#include <map>

#include "discreet/numerics/rounding.h"

namespace discreet::admission {

std::vector<ContributorTotal> contributor_totals(std::span<const Descriptor> admitted) {
  std::map<std::string, ContributorTotal> by_name;
  for (const Descriptor& d : admitted) {
    ContributorTotal& total = by_name[d.contributor];
    total.contributor = d.contributor;
    ++total.contributions;
    if (d.promise == Promise::kAmplified) {
      ++total.amplified;
    } else {
      const double mu = numerics::next_up(1 / d.noise_multiplier.from_below());
      total.gdp_mu = numerics::next_up(total.gdp_mu + mu);
    }
  }
  std::vector<ContributorTotal> out;
  out.reserve(by_name.size());
  for (auto& [name, total] : by_name) out.push_back(std::move(total));
  std::ranges::stable_sort(out, std::greater<>(), &ContributorTotal::gdp_mu);
  return out;
}

}  // namespace discreet::admission
