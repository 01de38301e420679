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
// layout. Equal classes have equal profiles, whatever else the descriptor says (but for the adapter
// it names, where the class is bound to that); equal (class, C, z, k, adapter) give equal plans.
//
// The promise. A descriptor (C, z, k) promises that all its uses together reveal no more than one
// Gaussian release of sensitivity C with noise of standard deviation z C, for neighbours that
// differ in this payload being zeroed out:
//   every pattern   at most k uses over all runs, each with noise multiplier
//                     m = sqrt(k) z,   rounded up:
//                   the uses are 1/z-GDP together, whichever steps they are in. With other noise
//                   than Gaussian m is that of families.h: with Laplace noise they are 1/z-GDP too;
//                   with discrete Gaussian or Skellam noise their Renyi divergences together are at
//                   most those of the one Gaussian release (of whole orders).
//   amplified       in all `steps` steps of the class's schedule the contribution is sampled at
//                   `rate`; m is the least multiplier, rounded up, at which the certified epsilon
//                   at `delta` is at most that of one Gaussian of multiplier z. Holds while nobody
//                   learns who was sampled.
// The policy fixes the noise s_b of each block; the record is cut until its own multiplier is m:
//   flat        c   = min(C, min_b s_b / m)                                  over its whole profile
//   per block   c_b = s_b min(1 / (m sqrt(B)), C / sqrt(sum_b s_b^2))        in each of its B
//   blocks
// All roundings make the record smaller and m larger, never the reverse.

struct Resolution {
  RoutePlan plan;
  double required_multiplier;  // m, rounded up
  double use_multiplier;       // sigma of one use under the plan, rounded down; >= m
  double use_variance;         // per use: the least variance of noise on the record's coordinates
  // Uses that are reserved before the noise is drawn (uses.h): at most this many over all runs. Of
  // an amplified class they are steps of the schedule, whether or not it is sampled in them.
  std::uint32_t most_uses;
  // What all uses together are promised (every pattern): mu of Gaussian DP, rounded up, = 1/z; or,
  // with discrete Gaussian or Skellam noise, rho = 1/(2 z^2), rounded up, with Renyi divergences of
  // at most order * rho (discrete Gaussian: of every order, which is rho-zCDP).
  std::optional<double> gdp_mu;
  std::optional<double> renyi_rho;
  // Amplified: epsilon at the class's delta, adjacency zero_out; and that of one Gaussian of
  // multiplier z, which it does not exceed.
  std::optional<accounting::Interval> amplified_epsilon;
  std::optional<accounting::Interval> gaussian_epsilon;
  std::vector<std::string> layers;  // that are permitted, in the order of the stack
  std::size_t stack = 0;            // number of layers of the model
};

// The descriptor must have passed the gate of this policy: its bound is checked against the class
// again here, for callers who forgot (kInvalidInput). Throws kInvalidDpConfig if the profile
// permits nothing in this layout, names modules, layers, heads, experts or an adapter that it does
// not have, if no noise keeps an amplified promise, if a class is amplified and the noise neither
// Gaussian nor rounded Gaussian, or if Laplace, discrete Gaussian or Skellam noise would fall on
// several blocks.
Resolution resolve(const Policy& policy, const Descriptor& descriptor, const ModelLayout& layout,
                   const UseNoise& noise = {});

// The permitted tensors of a profile, ascending; `adapter` is the descriptor's. Throws as above.
std::vector<RouteTensor> permitted_tensors(const DepthProfile& profile, const std::string& adapter,
                                           const ModelLayout& layout);
// The stack: see policy.h.
std::vector<std::string> layer_stack(const ModelLayout& layout);

}  // namespace discreet::admission
