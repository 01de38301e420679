#pragma once

#include <cstdint>
#include <vector>

namespace discreet::accounting {

// The input of the certified accountants, after events have been reduced to dominating pairs. Let P
// be the output distribution with the record and Q without it. A step of rate q and noise
// multiplier sigma is dominated by P = (1-q) N(0, sigma^2) + q N(1, sigma^2), Q = N(0, sigma^2).

// `count` steps that each add Gaussian noise to a Poisson subsample.
struct GaussianSteps {
  double rate;          // q in (0, 1]; 1 is the full batch
  double sigma;         // standard deviation / sensitivity, > 0
  std::uint64_t count;  // >= 1
  friend auto operator<=>(const GaussianSteps&, const GaussianSteps&) = default;
};

// `count` mechanisms that are each (epsilon, delta)-DP, with nothing else known about them.
struct ExplicitSteps {
  double epsilon;       // >= 0
  double delta;         // in [0, 1)
  std::uint64_t count;  // >= 1
  friend auto operator<=>(const ExplicitSteps&, const ExplicitSteps&) = default;
};

// A multiset of steps in canonical form: sorted, with each (rate, sigma) and (epsilon, delta) once.
// Equal multisets have equal bytes, independent of the order of the steps.
struct Composition {
  std::vector<GaussianSteps> gaussians;
  std::vector<ExplicitSteps> explicits;
  // The multiset union. Counts must not exceed 64 bits.
  void merge(const Composition& more);

  friend bool operator==(const Composition&, const Composition&) = default;
};

// The two directions of add/remove adjacency; the guarantee is the worse of the two.
enum class Direction {
  kRemove,  // hockey-stick divergence of P from Q
  kAdd,     // hockey-stick divergence of Q from P
};

// A quantity known to lie in [lower, upper]; decisions use upper.
struct Interval {
  double lower;
  double upper;
};

}  // namespace discreet::accounting
