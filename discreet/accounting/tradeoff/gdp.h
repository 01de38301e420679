#pragma once

#include <span>

#include "discreet/accounting/composition.h"

// Gaussian differential privacy: the pair N(mu, 1), N(0, 1).
//
// T full-batch Gaussian releases with noise multipliers s_1..s_T together are exactly as private as
// one release with mu^2 = 1/s_1^2 + ... + 1/s_T^2 (Dong, Roth, Su 2022), and the pair satisfies
//
//   delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)
//
// with equality. The first part of this header is exact and certified. The second part is the
// central limit approximation for subsampled steps. It is not a bound in either direction and can
// be far too low (q = .001, sigma = .6, 10^4 steps, delta = 1e-5: 1.505 instead of 2.456), so it
// has separate types without conversions.
//
// Proof: gdp.md
namespace discreet::accounting {

// An enclosure of delta(epsilon). mu >= 0 and epsilon >= 0, both finite, otherwise kInvalidInput.
Interval gaussian_delta(double mu, double epsilon);

// An enclosure of the smallest epsilon >= 0 with delta(epsilon) <= delta. delta(upper) <= delta is
// checked with the upper end of gaussian_delta, delta(lower) >= delta with its lower end (or lower
// = 0). mu >= 0 finite, delta in (0, 1), otherwise kInvalidInput. Throws kAccountantOverflow if no
// epsilon in the range of binary64 can be certified.
Interval gaussian_epsilon(double mu, double delta);

// A mu justified only by the central limit theorem. Not a bound.
class CltMu {
 public:
  explicit CltMu(double value) noexcept : value_(value) {}
  double value() const noexcept { return value_; }

 private:
  double value_;
};

// An epsilon justified only by the central limit theorem. Not a bound; print it as an
// approximation.
class CltEpsilon {
 public:
  explicit CltEpsilon(double value) noexcept : value_(value) {}
  double not_a_bound() const noexcept { return value_; }

 private:
  double value_;
};

// mu = sqrt(sum count q^2 (e^{1/sigma^2} - 1)) for Poisson subsampling. May be +inf for tiny sigma.
CltMu clt_mu_poisson(std::span<const GaussianSteps> steps);

// mu = sqrt(2 sum count q^2 (e^{1/sigma^2} Phi(3/(2 sigma)) + 3 Phi(-1/(2 sigma)) - 2)) for uniform
// batches of fixed size (Bu, Dong, Long, Su 2020). Some published code uses this formula for other
// samplers; it applies only to fixed-size batches, and is an approximation there too.
CltMu clt_mu_uniform(std::span<const GaussianSteps> steps);

CltEpsilon clt_epsilon(CltMu mu, double delta);

}  // namespace discreet::accounting
