#pragma once

#include <cstdint>

#include "discreet/accounting/group_privacy.h"

namespace discreet::accounting {

// Proof: pld.md
// Proof: group_privacy.md

// The extreme setting that keeps a promise, for Poisson sampling, Gaussian noise and add_remove
// adjacency. Every answer is certified: `reached.value.upper <= target`. If `proven` is true, it is
// within 1e-4 relative of the best possible setting (for steps: or within one step). Each search
// evaluates the accountant at most kMaxEvaluations times, the one for steps kMaxStepEvaluations.

inline constexpr int kMaxEvaluations = 30, kMaxStepEvaluations = 80;

struct Target {
  double epsilon;           // > 0, finite
  double delta;             // in (0, 1)
  std::uint64_t group = 1;  // number of records that the promise covers together (group_privacy.h)
};

// Throws kInvalidDpConfig in the name of `op` unless epsilon and delta are in range.
void check_target(const char* op, const Target& target);

// The epsilon of a composition, as accurate as a comparison with the target requires: by contour to
// 1e-8 in delta; by transform to 2e-5 relative to the target if epsilon is within 5% of it,
// otherwise to 1%. Throws as certified_group_epsilon.
Certified epsilon_near(const Composition& steps, const Target& target);

// How a search evaluates epsilon.
enum class Evaluation : std::uint8_t {
  kUniform,  // everywhere as accurately as near the target: bounds of amplified classes depend on
             // its bits
  kNear,     // by epsilon_near(): several times faster where only the transform certifies
};

template <class T>
struct Calibrated {
  T value;            // the setting
  Certified reached;  // epsilon at that setting; upper <= target
  bool proven;        // a setting 1e-4 further (relative; for steps: or one more) provably breaks
                      // the promise
  int evaluations;    // evaluations of the accountant
};

// The smallest noise multiplier. rate in (0, 1], steps >= 1.
Calibrated<double> calibrate_noise_multiplier(double rate, std::uint64_t steps,
                                              const Target& target,
                                              Evaluation evaluation = Evaluation::kUniform);

// The largest number of steps, at most 2^50: one more (beyond 10^9 steps: 1e-9 more) was evaluated,
// and its upper end exceeds the target. Infeasible if a single step exceeds the target.
Calibrated<std::uint64_t> calibrate_steps(double rate, double noise_multiplier,
                                          const Target& target);

// The largest sampling rate.
Calibrated<double> calibrate_rate(double noise_multiplier, std::uint64_t steps,
                                  const Target& target);

// The smallest delta for an epsilon and one record: the upper end of the certified interval.
Certified calibrate_delta(double rate, double noise_multiplier, std::uint64_t steps,
                          double epsilon);

// All throw kInvalidDpConfig. It names the value that is out of range or, if no setting keeps the
// promise, states what is attainable.

}  // namespace discreet::accounting
