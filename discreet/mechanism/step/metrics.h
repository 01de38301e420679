#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "discreet/accounting/composition.h"
#include "discreet/accounting/event.h"
#include "discreet/base/cbor.h"

namespace discreet::mechanism {

// The dp_metrics of a step (0.I and section 7 of the specification). Those marked * depend on the
// step's records and have no noise: confidential, for the trace and the operator only.
struct DpMetrics {
  double clip_fraction = 0;                 // *
  std::vector<double> group_clip_fraction;  // * one per part
  double noise_scale_sigma = 0;             // the scheduled base multiplier
  // The accounted multiplier: includes sigma map, adaptation counts and rounding of sums.
  double effective_noise_multiplier = 0;
  // The single multiplier that is equivalent to the sigma map alone.
  double effective_heterogeneous_multiplier = 0;
  std::uint64_t effective_accumulation_factor = 1;  // microbatches of the step
  double cumulative_epsilon = 0;                    // upper end; authoritative
  double privacy_budget_remaining = 0;              // target - cumulative_epsilon, at least 0
  std::optional<double> projected_final_epsilon;    // advisory; empty without target_steps
  double norm_p50 = 0, norm_p95 = 0, norm_max = 0;  // *
  // * norm of the average clipped gradient over the expected norm of the noise,
  // sqrt(sum_g d_g stddev_g^2) (at least EPS_DENOM).
  double gradient_snr = 0;
  double fairness_clip_ratio = 1;  // *
  double scaling_law_confidence = 0;
  double peft_noise_reduction_factor = 1;
  std::string accountant_type_used;         // the one that gave the upper end
  std::optional<double> pld_epsilon_tight;  // if the accountant is PLD
  std::string privacy_allocation_mode;
  // Informational: the accounted events already include both.
  // The part of cumulative epsilon that adapting the clip bounds cost (adaptation_cost(), if every
  // step so far was like this one); with adaptive clipping only.
  std::optional<double> delta_eps;
  // AmplificationByShuffling_v1; with subsampling SHUFFLE_WITHOUT_REPLACEMENT only.
  std::optional<double> amplification_factor;
  std::uint64_t zeroed_records = 0;  // * not finite, under nonfinite: zero
  std::uint64_t records = 0;         // * of the step, including zeroed ones; not in the trace

  // zeroed_records and the metrics of the trace's `iter` line, by name; delta_eps and
  // amplification_factor where they apply.
  cbor::Value to_cbor() const;
};

// The metrics that a step may publish under metrics.release: dp. Noised within the step's event.
struct ReleasedMetrics {
  double clip_fraction = 0;
  std::vector<double> group_clip_fraction;
};

// The updated_budget of a step.
struct UpdatedBudget {
  accounting::Interval before;  // cumulative epsilon
  accounting::Interval after;
  double target = 0;
  double delta = 0;
  accounting::Adjacency adjacency = accounting::Adjacency::kAddRemove;
  bool past_warning = false;  // after.upper > target * (1 - safety_budget_reserve)
};

}  // namespace discreet::mechanism
