#pragma once

#include <functional>
#include <limits>
#include <span>
#include <string_view>

#include "discreet/accounting/renyi/rdp.h"

// Parts shared by the log-moment curves. Private.
namespace discreet::accounting {

inline constexpr double kUnit = 0x1p-53;  // relative error of one rounding to nearest
// Added to upper ends. It exceeds the loss from a few roundings of subnormal numbers, or from a
// result that underflows, and does not change any number above 1e-303.
inline constexpr double kUnderflow = 0x1p-1060;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr int kMaxBinomialOrder = 256;  // C(256, 128) = 5.8e75: products stay in range

// Throw as described in rdp.h.
void require_rate(std::string_view op, double rate);
void require_scale(std::string_view op, std::string_view name, double value);

// log(sum_i e^exponent_i), each exponent known within +-error_i; -inf for an empty sum.
Interval log_sum_exp(std::span<const double> exponents, std::span<const double> errors);

// log(1 + e^x) rounded outwards.
Interval log1p_exp(Interval x);

// log E_Q[((1-q) + q P1/Q)^n] from the log-moments of the unsampled step:
//   sum_i C(n,i) (1-q)^(n-i) q^i e^{k(i)},  k(0) = k(1) = 0,
// with the ones cancelled exactly. moment(i) bounds k(i) for i = 2..n.
Interval binomial_log_moment(double rate, int order, const std::function<Interval(int)>& moment);

// A curve known at the integers 2..kMaxBinomialOrder, with chords between them (K is convex,
// K(1)=0).
class IntegerCurve : public RenyiCurve {
 protected:
  virtual Interval at_integer(int order) = 0;

 private:
  LogMoment evaluate(double order) final;
  Interval cached(int order);
  double lower_[kMaxBinomialOrder + 1] = {};
  double upper_[kMaxBinomialOrder + 1] = {};  // 0: not computed yet
};

}  // namespace discreet::accounting
