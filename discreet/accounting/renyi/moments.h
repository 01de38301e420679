#pragma once

#include "discreet/accounting/renyi/rdp_conversion.h"

// The moments accountant as first published (Abadi et al. 2016): log-moments of integer order
// lambda = 1 .. kMaxMoment (Rényi order lambda + 1) add up over steps, and
//
//   epsilon = min over lambda of (alpha(lambda) + log(1/delta)) / lambda,
//   delta   = min over lambda of e^{alpha(lambda) - lambda epsilon}.
//
// Sound, and never tighter than `rdp`, which improves on the conversion and the orders. Rounded up.
// Proof: rdp.md
namespace discreet::accounting {

inline constexpr int kMaxMoment = 128;

// alpha(lambda) is `moments(lambda + 1)`. Every lambda is evaluated. delta in (0, 1).
double moments_epsilon(const MomentSum& moments, double delta);
// epsilon >= 0. At most 1.
double moments_delta(const MomentSum& moments, double epsilon);

}  // namespace discreet::accounting
