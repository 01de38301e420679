#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "discreet/accounting/composition.h"

// The falsifier: hypothesis tests of privacy claims on simulated mechanisms.
//
// A claim "epsilon at delta" says of two neighbouring data sets, `with` and `without` a record,
// that for every set S of outputs P[with in S] <= e^epsilon P[without in S] + delta (direction
// remove), and the same with the roles exchanged (direction add). One set S that breaks it refutes
// the claim, whatever mathematics led to it. Here S = {L > epsilon}, or {L < -epsilon} for add,
// where L is the logarithm of the likelihood ratio, the best set there is; a wrong L would cost
// power, never truth. The mechanisms are simulated with the project's own samplers and noise
// (simulated.h), so that samplers and accountants are tested together.
namespace discreet::conformance {

using accounting::Direction;
using accounting::Interval;

// The probability of rejecting a true claim with a new seed. Seeds are fixed, so a test either
// always passes or always fails; a hundred tests have a chance of 1e-4 to hold one false alarm.
inline constexpr double kFalseAlarm = 1e-6;

// A claim that must be rejected must exceed the threshold by this many standard deviations: the
// power. Where the expected margin is 4, a new seed fails to reject with probability 3.2e-5.
inline constexpr double kPowerMargin = 4;

// The log-likelihood ratios log(p_with / p_without) of the outputs of independent trials.
struct Losses {
  std::vector<double> with, without;  // simulated with and without the record; as many of each
};

struct Verdict {
  double excess;     // lower confidence bound of P(S) - e^epsilon Q(S) - delta
  double deviation;  // standard deviation of the estimate of P(S) - e^epsilon Q(S)
  bool rejected() const noexcept { return excess > 0; }
  double margin() const noexcept { return excess / deviation; }
};

// What `trials` pairs of trials, one in each world, say of a claim: `first` of them saw S in the
// world P, `second` in the world Q, `both` in both. A pair is worth X = 1[S in P] - e^epsilon 1[S
// in Q], whose mean is at most delta if the claim is true. The bound is the empirical Bernstein
// bound (Maurer and Pontil 2009, Theorem 4): with V the sample variance and l = log(2 /
// kFalseAlarm),
//   mean X >= average X - sqrt(2 V l / n) - 7 l (1 + e^epsilon) / (3 (n - 1))
// except with probability kFalseAlarm, for every law and every n >= 2.
Verdict judge(std::size_t first, std::size_t second, std::size_t both, std::size_t trials,
              double epsilon, double delta);

Verdict falsify(const Losses& losses, Direction direction, double epsilon, double delta);

// What a step does, in a finite number of outcomes: their probabilities with and without the
// record.
struct Outcome {
  double with, without;
};

// The exact epsilon at delta of `steps` <= 3 independent repetitions, by enumeration: an oracle
// that shares nothing with the accountants. Rounding is that of binary64 sums.
double enumerated_epsilon(std::span<const Outcome> outcomes, int steps, Direction direction,
                          double delta);

}  // namespace discreet::conformance
