#pragma once

#include <cstdint>

#include "discreet/accounting/group_privacy.h"

namespace discreet::accounting {

// Proof: pld.md
// Proof: group_privacy.md

// The largest or smallest setting that keeps a promise: Poisson sampling, Gaussian noise, adjacency
// add_remove. Every answer is certified, `reached.value.upper <= target`, and lies within 1e-4
// relative of the best possible one (steps: and 1) wherever `proven` says so. At most
// kMaxEvaluations evaluations of the accountant.

inline constexpr int kMaxEvaluations = 30;

struct Target {
  double epsilon;           // > 0, finite
  double delta;             // in (0, 1)
  std::uint64_t group = 1;  // records that the promise covers together (group_privacy.h)
};

template <class T>
struct Calibrated {
  T value;            // the setting
  Certified reached;  // epsilon at that setting; upper <= target
  bool proven;      // a setting within 1e-4 relative (steps: or one more) is certified to break the
                    // promise
  int evaluations;  // of the accountant
};

// The least noise multiplier. rate in (0, 1], steps >= 1.
Calibrated<double> calibrate_noise_multiplier(double rate, std::uint64_t steps,
                                              const Target& target);

// The largest number of steps. Infeasible if one step is too many.
Calibrated<std::uint64_t> calibrate_steps(double rate, double noise_multiplier,
                                          const Target& target);

// The largest sampling rate.
Calibrated<double> calibrate_rate(double noise_multiplier, std::uint64_t steps,
                                  const Target& target);

// The least delta for an epsilon, one record: the upper end of the certified interval.
Certified calibrate_delta(double rate, double noise_multiplier, std::uint64_t steps,
                          double epsilon);

// All throw kInvalidDpConfig naming the value out of range; or, if nothing keeps the promise,
// saying what is attainable.

}  // namespace discreet::accounting
