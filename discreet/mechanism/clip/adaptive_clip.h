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
// g, inside [lower, upper]. Both are estimated from two noised counts a step, on the subsample that
// the gradient uses, so that one step stays one Gaussian release (accounting::Adaptation):
//
//   a_g = sum_i (1[n_ig <= M_g] - 1/2)              + N(0, sigma_b^2)
//   b_g = sum_i (1[|n_ig - M_g| <= A_g] - 1/2)      + N(0, sigma_b^2)
//   M_g <- M_g · exp(-eta · a_g / B_eff),   A_g <- A_g · exp(-eta · b_g / B_eff)
//
// M_g and A_g, the estimates before the step, were released already. A record moves a count by 1/2
// at most; one that was zeroed, or is absent, by 0. B_eff is declared: a realised batch size would
// be another release.

struct AdaptiveClipOptions {
  double batch = 1;            // B_eff, > 0
  double deviation = 10;       // sigma_b of each count, > 0
  double lower = 1e-3;         // 0 < lower <= upper: of the bound and of the median
  double upper = 1e3;          //
  double spread = 1;           // k >= 0: how many MADs above the median
  double learning_rate = 0.2;  // eta in (0, 1]
  AdaptiveAccounting accounting = AdaptiveAccounting::kConservative;
  bool allow_nonprivate = false;  // permits kHeuristic
  bool regulated = false;         // forbids it again
};
// From the keys of the configuration; B_eff must be declared (kInvalidDpConfig otherwise).
AdaptiveClipOptions adaptive_clip_options(const DpConfig& config);

// The specification's norm_history_state: what was released so far. Not confidential when every
// update was conservative.
struct AdaptiveClipState {
  std::vector<double> median;  // M_g, in [lower, upper]
  std::vector<double> mad;     // A_g, in [lower / 1024, upper]
  std::uint64_t updates = 0;   // steps taken
  bool not_private = false;    // some update was heuristic

  // Deterministic CBOR, and back: kMalformed for bytes that are no such state.
  Bytes encode() const;
  static AdaptiveClipState decode(ByteView bytes);
  friend bool operator==(const AdaptiveClipState&, const AdaptiveClipState&) = default;
};

// The state whose bounds are `clip` (held inside [lower, upper]), with MAD half the median.
AdaptiveClipState initial_state(std::span<const double> clip, const AdaptiveClipOptions& options);

// The bounds of a state: clamp(M_g + k A_g, lower, upper).
std::vector<double> clip_norms(const AdaptiveClipState& state, const AdaptiveClipOptions& options);

// The counts of one microbatch, not yet noised: confidential. They are multiples of 1/2 and exact,
// so counts of microbatches and ranks may be added in any order.
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
// or under regulated; kInvalidInput for another number of noises, or one that is not finite. Under
// kHeuristic the state is not_private, and so is the run.
AdaptiveClipState adapt_clip_norms(const AdaptiveClipState& state, const NormCounts& counts,
                                   const AdaptiveClipOptions& options,
                                   std::span<const double> noise);

// What a step releases beside the gradient, for the accounting event: 2 counts per part of
// deviation sigma_b. None under kHeuristic, which is not accounted and not private.
std::optional<accounting::Adaptation> adaptation(const AdaptiveClipOptions& options,
                                                 std::size_t parts);

// delta_epsilon_cost: how much of epsilon(delta) after `steps` events is due to the adaptation,
// upper end with it minus upper end without it, at least 0. Informational: the event holds the cost
// already, adding this to an epsilon would count it twice. 0 for an event without adaptation.
//   accountant: "pld", "rdp", … (accounting::make_accountant).
double adaptation_cost(const accounting::Event& event, std::uint64_t steps, double delta,
                       std::string_view accountant);

// The estimates as a norm history for the analysis of sensitivities: C_g of the state. Throws
// kInvalidDpConfig if the state is not_private.
NormHistory norm_history(const AdaptiveClipState& state, const AdaptiveClipOptions& options);

}  // namespace discreet::mechanism
