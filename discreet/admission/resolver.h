#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "discreet/accounting/composition.h"
#include "discreet/admission/descriptor.h"
#include "discreet/admission/families.h"
#include "discreet/admission/policy.h"
#include "discreet/layout/layout.h"
#include "discreet/layout/route_plan.h"

namespace discreet::admission {

// Proof: resolver.md

// The admissibility resolver: a pure function of the policy, an admitted descriptor and the model's
// layout. Equal classes have equal profiles, whatever else the descriptor says (except for the
// adapter it names, if the class is bound to that); equal (class, C, z, k, adapter) give equal
// plans.
//
// The promise. A descriptor (C, z, k) promises that all its uses together reveal at most as much as
// one Gaussian release of sensitivity C with noise of standard deviation z C, for neighbours that
// differ by zeroing out this payload:
//   every pattern   at most k uses over all runs, each with noise multiplier
//                     m = sqrt(k) z,   rounded up:
//                   together the uses are 1/z-GDP, in whichever steps they occur. For noise other
//                   than Gaussian, m is that of families.h: with Laplace noise the uses are 1/z-GDP
//                   too; with discrete Gaussian or Skellam noise their joint Renyi divergences are
//                   at most those of the one Gaussian release (at integer orders).
//   amplified       the contribution is sampled at `rate` in all `steps` steps of the class's
//                   schedule; m is the smallest multiplier, rounded up, at which the certified
//                   epsilon at `delta` is at most that of one Gaussian of multiplier z. Holds as
//                   long as nobody learns which contributions were sampled.
// The policy fixes the noise s_b of each block. The record is clipped so that its own multiplier is
// at least m:
//   flat        c   = min(C, min_b s_b / m)                             over its whole profile
//   per block   c_b = s_b min(1 / (m sqrt(B)), C / sqrt(sum_b s_b^2))   in each of its B blocks
// All roundings make the clip bound smaller and m larger, never the reverse.

struct Resolution {
  RoutePlan plan;
  double required_multiplier;  // m, rounded up
  double use_multiplier;       // sigma of one use under the plan, rounded down; >= m
  double use_variance;         // per use: the smallest noise variance on the record's coordinates
  // The maximum number of uses over all runs, reserved before the noise is drawn (uses.h). For an
  // amplified class these are the steps of the schedule, whether or not it is sampled in them.
  std::uint32_t most_uses;
  // The joint promise for all uses (every pattern): mu of Gaussian DP, rounded up, = 1/z; or, with
  // discrete Gaussian or Skellam noise, rho = 1/(2 z^2), rounded up, with Renyi divergences of at
  // most order * rho (discrete Gaussian: at every order, which is rho-zCDP).
  std::optional<double> gdp_mu;
  std::optional<double> renyi_rho;
  // Amplified: epsilon at the class's delta, adjacency zero_out. It does not exceed
  // gaussian_epsilon, the epsilon of one Gaussian of multiplier z.
  std::optional<accounting::Interval> amplified_epsilon;
  std::optional<accounting::Interval> gaussian_epsilon;
  std::vector<std::string> layers;  // permitted layers, in stack order
  std::size_t stack = 0;            // number of layers of the model
};

// The descriptor must have passed the gate of this policy. Its bound is checked against the class
// again (kInvalidInput), in case the caller skipped the gate. Throws kInvalidDpConfig if the
// profile permits nothing in this layout or names modules, layers, heads, experts or an adapter
// that the layout does not have; if no noise keeps an amplified promise; if a class is amplified
// and the noise is neither Gaussian nor rounded Gaussian; or if Laplace, discrete Gaussian or
// Skellam noise would cover several blocks.
Resolution resolve(const Policy& policy, const Descriptor& descriptor, const ModelLayout& layout,
                   const UseNoise& noise = {});

// The permitted tensors of a profile, ascending; `adapter` is that of the descriptor. Throws as
// above.
std::vector<RouteTensor> permitted_tensors(const DepthProfile& profile, const std::string& adapter,
                                           const ModelLayout& layout);
// The stack, as defined in policy.h.
std::vector<std::string> layer_stack(const ModelLayout& layout);

}  // namespace discreet::admission
