#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "discreet/accounting/event.h"
#include "discreet/base/bytes.h"
#include "discreet/config/config.h"
#include "discreet/mechanism/clip/clip.h"
#include "discreet/mechanism/clip/norm_history.h"

namespace discreet::mechanism {

// Proof: adaptive_clip.md

// UML_OS.DifferentialPrivacy.BoundedPrivacyAwareAdaptiveClipNorm_v1
//
// A clip bound that follows the norms of the records: C_g = median + k · MAD of the norms of part
// g, within [lower, upper]. Both are estimated from two noised counts per step, on the subsample of
// the gradient, so one step remains one Gaussian release (accounting::Adaptation):
//
//   a_g = sum_i (1[n_ig <= M_g] - 1/2)              + N(0, sigma_b^2)
//   b_g = sum_i (1[|n_ig - M_g| <= A_g] - 1/2)      + N(0, sigma_b^2)
//   M_g <- M_g · exp(-eta · a_g / B_eff),   A_g <- A_g · exp(-eta · b_g / B_eff)
//
// M_g and A_g, the estimates before the step, are already released. A record changes a count by at
// most 1/2; a zeroed or absent record by 0. B_eff is declared: the realised batch size would be
// another release.

struct AdaptiveClipOptions {
  double batch = 1;       // B_eff, > 0
  double deviation = 10;  // sigma_b of each count, > 0
  double lower = 1e-3;    // 0 < lower <= upper: limits of the bound and of the median
  double upper = 1e3;
  double spread = 1;           // k >= 0: number of MADs above the median
  double learning_rate = 0.2;  // eta in (0, 1]
  AdaptiveAccounting accounting = AdaptiveAccounting::kConservative;
  bool allow_nonprivate = false;  // permits kHeuristic
  bool regulated = false;         // forbids it in any case
};
// Reads the keys of the configuration; throws kInvalidDpConfig if B_eff is not declared.
AdaptiveClipOptions adaptive_clip_options(const DpConfig& config);

// The norm_history_state of the specification: what was released so far. Not confidential if every
// update was conservative.
struct AdaptiveClipState {
  std::vector<double> median;  // M_g, in [lower, upper]
  std::vector<double> mad;     // A_g, in [lower / 1024, upper]
  std::uint64_t updates = 0;   // number of steps
  bool not_private = false;    // some update was heuristic

  // Deterministic CBOR; decode throws kMalformed for bytes that do not encode a state.
  Bytes encode() const;
  static AdaptiveClipState decode(ByteView bytes);
  friend bool operator==(const AdaptiveClipState&, const AdaptiveClipState&) = default;
};

// The state with the bounds `clip` (clamped to [lower, upper]) and a MAD of half the median.
AdaptiveClipState initial_state(std::span<const double> clip, const AdaptiveClipOptions& options);

// The bounds of a state: clamp(M_g + k A_g, lower, upper).
std::vector<double> clip_norms(const AdaptiveClipState& state, const AdaptiveClipOptions& options);

// The counts of one microbatch before noise: confidential. They are exact multiples of 1/2, so
// counts of microbatches and ranks may be added in any order.
struct NormCounts {
  std::vector<double> below;   // sum_i (1[n <= M_g] - 1/2)
  std::vector<double> within;  // sum_i (1[|n - M_g| <= A_g] - 1/2)

  void add(const NormCounts& other);  // kInvalidInput if the parts differ
  friend bool operator==(const NormCounts&, const NormCounts&) = default;
};
// Throws kInvalidInput if norms and state have different parts.
NormCounts count_norms(const AdaptiveClipState& state, const RecordNorms& norms);

// The next state.
//   noise: standard normal numbers, 2 per part: noise[2g] for a_g, noise[2g + 1] for b_g. They come
//   from GenerateNoise_v1; nothing is drawn here. Under kHeuristic: empty.
// Throws kInvalidDpConfig if an option is out of range, or for kHeuristic without allow_nonprivate
// or under regulated; kInvalidInput for a wrong number of noises, or one that is not finite. Under
// kHeuristic the state becomes not_private, and so does the run.
AdaptiveClipState adapt_clip_norms(const AdaptiveClipState& state, const NormCounts& counts,
                                   const AdaptiveClipOptions& options,
                                   std::span<const double> noise);

// What a step releases besides the gradient, for the accounting event: 2 counts per part with
// deviation sigma_b. Empty under kHeuristic, which is not accounted and not private.
std::optional<accounting::Adaptation> adaptation(const AdaptiveClipOptions& options,
                                                 std::size_t parts);

// delta_epsilon_cost: the part of epsilon(delta) after `steps` events that is due to the
// adaptation: upper end with it minus upper end without it, at least 0. Informational: the event
// already includes the cost; adding this to an epsilon would count it twice. 0 for an event without
// adaptation.
//   accountant: "pld", "rdp", … (accounting::make_accountant).
double adaptation_cost(const accounting::Event& event, std::uint64_t steps, double delta,
                       std::string_view accountant);

// The bounds C_g of the state as a norm history for the analysis of sensitivities. Throws
// kInvalidDpConfig if the state is not_private.
NormHistory norm_history(const AdaptiveClipState& state, const AdaptiveClipOptions& options);

}  // namespace discreet::mechanism
