#pragma once

#include <cstdint>

#include "discreet/config/config.h"

namespace discreet::admission {

// Proof: resolver.md

// The noise that hides a use in a run.
struct UseNoise {
  NoiseFamily family = NoiseFamily::kGaussian;
  double grid = 0;  // discrete families: the step, in the unit of the gradients; else unused
};

// Whether k uses keep an every-pattern promise as a trade-off function, 1/z-GDP. If not (discrete
// Gaussian, Skellam), they keep it as Renyi divergences only.
bool promises_gdp(NoiseFamily family) noexcept;

// m is the standard deviation of the noise divided by the clip bound. These functions return the
// smallest m, rounded up, at which k uses together keep an every-pattern promise of multiplier z:
//   gaussian, rounded_gaussian, discrete_gaussian    sqrt(k) z
//   laplace     sqrt(2) / e, with e = log(Phi(x/2) / Phi(-x/2)), x = 1 / (sqrt(k) z): a use of L1
//               bound c and scale b is c/b-DP, hence x-GDP if c/b <= e
//   skellam     s/d, d the largest L2 sensitivity in grid steps with k rho(d) <= 1 / (2 z^2)
// k >= 1; z > 0 finite.
double gaussian_use(std::uint32_t k, double z) noexcept;
double laplace_use(std::uint32_t k, double z) noexcept;
//   stddev       of the noise in grid steps, rounded down, > 0
//   dimension    number of coordinates, rounded up
// Returns +infinity if no bound keeps the promise.
double skellam_use(std::uint32_t k, double z, double stddev, std::uint64_t dimension) noexcept;

// rho(d), rounded up: the Renyi divergence of one use is at most order * rho at every integer order
// >= 2. variance: in squared grid steps.
double skellam_rho(double sensitivity, double variance, std::uint64_t dimension) noexcept;

}  // namespace discreet::admission
