#pragma once

#include <cstdint>
#include <memory>

#include "discreet/accounting/composition.h"

// Rényi divergences of one step, as certified upper bounds.
//
// For an order a > 1 and a pair of output distributions P (with the record) and Q (without it),
//
//   K(a) = log E_Q[(P/Q)^a] = (a - 1) * D_a(P || Q)
//
// is the log-moment of the step. It is convex in a, K(1) = 0, and it adds up over adaptively chosen
// steps. Every curve here bounds K in both directions of its adjacency, so one number covers D_a(P
// || Q) and D_a(Q || P). Orders are binary64 numbers; a - 1 is exact in binary64.
//
// Rounding: `value.upper` is never below the true log-moment of the curve's mechanism bound. The
// rounding of every operation and the error of every quadrature are bounded and added (at most a
// few 1e-15 absolute plus a few 1e-15 of the value). `value.lower` is the same quantity rounded
// down, so upper - lower is exactly the numerical error. Elementary functions are assumed accurate
// within 1 ulp (numerics/elementary.h).
//
// Proof: rdp.md
namespace discreet::accounting {

// K at one order, with a derivative for searching.
struct LogMoment {
  Interval value;  // certified; upper is +inf if unknown
  double slope;    // dK/da, an estimate that guides the minimisation; not part of any bound
};

// The log-moment of one kind of step as a function of the order. `at` may extend internal tables,
// so only one thread at a time may use a curve.
class RenyiCurve {
 public:
  virtual ~RenyiCurve() = default;
  // order: finite, > 1. Throws kInvalidInput otherwise.
  LogMoment at(double order);

 private:
  virtual LogMoment evaluate(double order) = 0;
};

// Parameters of the factories below. They throw kInvalidDpConfig for a rate outside (0, 1],
// kNanInSigma for a noise scale that is not finite, kInvalidDpConfig for one that is not positive.
//   rate:  q, the probability (Poisson) or fraction (fixed size) with which a record is in a batch.
//   sigma: standard deviation of the noise divided by the L2 bound of one record's contribution.

// Gaussian noise on a Poisson subsample, add/remove (or zero-out) of one record. Integer orders up
// to 256 use the binomial sum with the unit terms cancelled exactly, so that tiny log-moments keep
// their relative accuracy. Other orders use the trapezoidal rule on E_Q[(P/Q)^a], with an error
// below 1e-16 of the moment. rate = 1 is the closed form a(a-1)/(2 sigma^2). Exact up to rounding.
std::unique_ptr<RenyiCurve> poisson_gaussian_curve(double rate, double sigma);

// Discrete Gaussian noise of scale sigma (in units of the sensitivity) on a Poisson subsample of
// integer vectors with L2 norm at most the sensitivity; add/remove. At integer orders the bound of
// the Gaussian (Canonne, Kamath, Steinke 2020, Theorem 14: the discrete divergence is at most that
// of the Gaussian); between integers the chord of K.
std::unique_ptr<RenyiCurve> poisson_discrete_gaussian_curve(double rate, double sigma);

// Laplace noise on a Poisson subsample, add/remove. scale: b / (L1 sensitivity). rate = 1 is the
// closed form at every order; below 1 the binomial sum at integer orders and chords between them.
std::unique_ptr<RenyiCurve> poisson_laplace_curve(double rate, double scale);

// Symmetric Skellam noise (difference of two Poisson variables) on a Poisson subsample of integer
// vectors, add/remove. variance: of one coordinate, in squared grid units. l1, l2: bounds on the L1
// and L2 norm of one record's vector (l1 >= l2). Agarwal, Kairouz, Liu 2021, Theorem 3.5, at
// integer orders; chords between them.
std::unique_ptr<RenyiCurve> poisson_skellam_curve(double rate, double variance, double l1,
                                                  double l2);

// Gaussian noise on a fixed-size sample without replacement, replace-one of a record, at every
// order:
//   log(A + a(a-1)/2 q^2 W),
// where A is the moment of the Poisson pair at sigma / 2 (replacing a record changes the sum by at
// most twice its bound) and W = E_Q[(P1/Q - 1)_+^2] for its two Gaussians. An upper bound, proven
// in rdp.md; about half of the general bound of Wang, Balle and Kasiviswanathan 2019.
std::unique_ptr<RenyiCurve> fixed_size_replace_curve(double rate, double sigma);

// The same sampler under add/remove: the Poisson log-moment at sigma / 2, at every order (rdp.md;
// Birrell et al. 2024 at integer orders).
std::unique_ptr<RenyiCurve> fixed_size_add_remove_curve(double rate, double sigma);

}  // namespace discreet::accounting
