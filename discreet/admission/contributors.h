#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "discreet/admission/descriptor.h"

namespace discreet::admission {

// Proof: resolver.md

// What all contributions of one contributor together are promised: a promise (C, z, k) is per
// contribution, and contributions of one contributor may share steps.
struct ContributorTotal {
  std::string contributor;
  std::uint64_t contributions = 0;
  std::uint64_t amplified = 0;  // of these: promised at one delta only, hence in no total
  // mu of Gaussian DP for zeroing out all payloads that are promised every pattern: sum of 1/z_i,
  // rounded up; 0 if there is none.
  double gdp_mu = 0;
};

// One for each contributor, the largest mu first, then by name.
std::vector<ContributorTotal> contributor_totals(std::span<const Descriptor> admitted);

}  // namespace discreet::admission
