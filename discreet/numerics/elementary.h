#pragma once

#include <span>

#include "discreet/numerics/strict_arithmetic.h"

// Elementary functions in binary64, without libm: the same bits on every processor, compiler and
// vector width. They use correctly rounded + - * / and sqrt in a fixed order, integer operations
// and tables; never a fused multiply-add. A span form gives, element by element, the bits of the
// scalar form.
//
// Accuracy, in units in the last place (ulp) of the exact result, subnormal results included:
//
//   exp expm1 log log1p sin cos atan2 erfc     at most 1 ulp   (the certificates assume this)
//   normal_cdf                                 at most 1 ulp   (relative, in both tails)
//   log_erfc                                   at most 3 ulp
//   normal_quantile                            at most 2 ulp
//
// The bounds hold on the whole domain. elementary.md derives them term by term, up to the rounding
// of polynomial tails; elementary_test.cpp measures the largest error of each function against MPFR
// and prints it as a line of the accuracy table. Monotonicity is not promised: the results of
// neighbouring arguments may be out of order by one ulp.
//
// Special values. A NaN argument, or an argument outside the domain, gives the quiet NaN
// 0x7ff8000000000000, always with these bits. There is no other error report: neither errno nor
// exception flags are set reliably.
//
// Rounding to nearest is assumed (strict_arithmetic.h).
// Proof: elementary.md
namespace discreet::numerics {

// e^x. exp(±0) = 1, exp(-inf) = 0, exp(+inf) = +inf. Overflows to +inf above 709.78...,
// to subnormals below -708.39..., to 0 below -745.13...
double exp(double x) noexcept;

// e^x - 1, accurate near 0. expm1(±0) = ±0, expm1(-inf) = -1, expm1(+inf) = +inf.
double expm1(double x) noexcept;

// The natural logarithm. log(1) = +0, log(±0) = -inf, log(+inf) = +inf; NaN for x < 0.
double log(double x) noexcept;

// log(1 + x), accurate near 0. log1p(±0) = ±0, log1p(-1) = -inf, log1p(+inf) = +inf.
// NaN for x < -1.
double log1p(double x) noexcept;

// x in radians, of any size: the argument is reduced modulo pi/2 exactly (Payne and Hanek beyond
// 2^20). sin(±0) = ±0, cos(±0) = 1; NaN for ±inf.
double sin(double x) noexcept;
double cos(double x) noexcept;

// The sine and cosine of 2 pi u, for |u| <= 2^20, within 1 ulp; the reduction of u is exact, so
// multiples of a quarter give exactly 0 and ±1. Zeros may have either sign.
void sin_cos_two_pi(double u, double& sine, double& cosine) noexcept;

// The angle of the point (x, y), in [-pi, pi], with the sign of y. Signed zeros and infinities as
// in C (F.10.1.4): atan2(±0, +0) = ±0, atan2(±0, -0) = ±pi, atan2(±inf, +inf) = ±pi/4, atan2(±inf,
// -inf) = ±3pi/4, atan2(±y, ±0) = ±pi/2.
double atan2(double y, double x) noexcept;

// The complementary error function 2/sqrt(pi) * integral of e^(-t^2) over [x, inf).
// erfc(-inf) = 2, erfc(+inf) = 0; subnormal above 26.54..., 0 above 27.23...
double erfc(double x) noexcept;

// log(erfc(x)), finite wherever -x^2 is: no underflow. log_erfc(-inf) = log 2,
// log_erfc(±0) = ∓0, -inf for x >= 2^512.
double log_erfc(double x) noexcept;

// The standard normal distribution function Phi(x) = erfc(-x/sqrt 2)/2.
// normal_cdf(-inf) = 0, normal_cdf(+inf) = 1; subnormal below -37.51..., 0 below -38.48...
double normal_cdf(double x) noexcept;

// The inverse of Phi, for a probability p in [0, 1]; NaN for other p. normal_quantile(0) = -inf,
// normal_quantile(1) = +inf, normal_quantile(1/2) = +0. For an upper tail t < 2^-53, use
// -normal_quantile(t): 1 - t would round to 1.
double normal_quantile(double p) noexcept;

// out[i] = f(in[i]) for i < min(in.size(), out.size()), with the widest vectors of the processor.
// `in` and `out` must be the same array or not overlap.
void exp(std::span<const double> in, std::span<double> out) noexcept;
void expm1(std::span<const double> in, std::span<double> out) noexcept;
void log(std::span<const double> in, std::span<double> out) noexcept;
void log1p(std::span<const double> in, std::span<double> out) noexcept;
void sin(std::span<const double> in, std::span<double> out) noexcept;
void cos(std::span<const double> in, std::span<double> out) noexcept;
// Sine and cosine together, for little more than the cost of one. The three arrays must have equal
// length and not overlap.
void sin_cos(std::span<const double> in, std::span<double> sine, std::span<double> cosine) noexcept;
// out[i] = atan2(y[i], x[i]). All three have the length of `y`; `out` may be `y`.
void atan2(std::span<const double> y, std::span<const double> x, std::span<double> out) noexcept;
void erfc(std::span<const double> in, std::span<double> out) noexcept;
void log_erfc(std::span<const double> in, std::span<double> out) noexcept;
void normal_cdf(std::span<const double> in, std::span<double> out) noexcept;

}  // namespace discreet::numerics
