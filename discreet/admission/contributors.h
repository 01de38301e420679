#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "discreet/admission/descriptor.h"

namespace discreet::admission {

// Proof: resolver.md

// The joint promise for all contributions of one contributor. A promise (C, z, k) holds for one
// contribution, and several contributions of one contributor may take part in the same step.
struct ContributorTotal {
  std::string contributor;
  std::uint64_t contributions = 0;
  std::uint64_t amplified = 0;  // those promised at one delta only; excluded from totals
  // mu of Gaussian DP for zeroing out all payloads with an every-pattern promise: the sum of 1/z_i,
  // rounded up; 0 if there is none. Holds if promises_gdp(family) of every run's noise (families.h).
  double gdp_mu = 0;
};

// One entry per contributor, largest mu first, then by name.
std::vector<ContributorTotal> contributor_totals(std::span<const Descriptor> admitted);

}  // namespace discreet::admission
