#pragma once

#include <cstdint>
#include <vector>

#include "discreet/config/config.h"
#include "discreet/layout/layout.h"
#include "discreet/mechanism/clip/norm_history.h"

namespace discreet::mechanism {

// How the strategy cuts the private parameters: per_layer, per_group, per_tensor as they say,
// hybrid by group, every other strategy flat.
Cut cut_of(ClipStrategy strategy) noexcept;

// What is expected of a record's norm in each part before it is clipped. It decides how the bound
// of a record is divided among the parts; privacy rests on the clip bounds, never on this.
enum class SensitivitySource : std::uint8_t {
  kDeclared,     // sensitivity_map of the configuration
  kPublicNorms,  // the norm history, public
  kNoisedNorms,  // the norm history, noised: it changes with what is released
  kClipBound,  // nothing is known: clip_norm_map, else an equal share C / sqrt(G) of clipping.norm
};
struct SensitivityMap {
  Partition partition;                    // cut_of(clip_strategy)
  std::vector<double> sensitivity;        // s_g, one per part: finite, > 0
  std::vector<SensitivitySource> source;  // one per part
};

// UML_OS.DifferentialPrivacy.SensitivityAnalyzer_v1
//   layout:  with the public modules marked.
//   norms:   one per part, or null.
//   routing: the shares of experts, or null. They are checked (one per expert, in [0, 1]) and do
//            not change the result: a record may be routed to any expert, so that each expert's
//            part has the full sensitivity and, see below, the full rate.
// Throws kInvalidDpConfig for a map or numbers that do not fit, naming them.
SensitivityMap analyze_sensitivity(const DpConfig& config, const ModelLayout& layout,
                                   const NormHistory* norms = nullptr,
                                   const RoutingStats* routing = nullptr);

// The sampling rate of an expert's part: q, whatever its share of records. A record is in the batch
// with probability q, and the router, which saw the record, may send it to this expert for sure; a
// rate of q times the share is a statement about the other records (sigma = 1, q = .01, 1000 steps,
// delta = 1e-5, 8 experts of equal share: it claims epsilon .190 where 1.828 is true).
double effective_sampling_rate(double rate, const RoutingStats* routing) noexcept;

}  // namespace discreet::mechanism
