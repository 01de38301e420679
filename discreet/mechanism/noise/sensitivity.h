#pragma once

#include <cstdint>
#include <vector>

#include "discreet/config/config.h"
#include "discreet/layout/layout.h"
#include "discreet/mechanism/clip/norm_history.h"

namespace discreet::mechanism {

// How a strategy divides the private parameters: per_layer, per_group and per_tensor by their name,
// hybrid by group, every other strategy flat.
Cut cut_of(ClipStrategy strategy) noexcept;

// The expected norm of a record in each part before clipping. It determines how a record's bound is
// divided among the parts. Privacy depends on the clip bounds, never on this.
enum class SensitivitySource : std::uint8_t {
  kDeclared,     // sensitivity_map of the configuration
  kPublicNorms,  // the norm history, public
  kNoisedNorms,  // the norm history, noised: depends on releases
  kClipBound,    // unknown: clip_norm_map, else an equal share C / sqrt(G) of clipping.norm
};
struct SensitivityMap {
  Partition partition;                    // cut_of(clip_strategy)
  std::vector<double> sensitivity;        // s_g, one per part: finite, > 0
  std::vector<SensitivitySource> source;  // one per part
};

// UML_OS.DifferentialPrivacy.SensitivityAnalyzer_v1
//   layout:  with the public modules marked.
//   norms:   one per part, or null.
//   routing: the shares of experts, or null. They are checked (one per expert, in [0, 1]) but do
//            not change the result: a record may be routed to any expert, so each expert's part
//            has the full sensitivity and the full rate (see below).
// Throws kInvalidDpConfig, naming the map or number that does not fit.
SensitivityMap analyze_sensitivity(const DpConfig& config, const ModelLayout& layout,
                                   const NormHistory* norms = nullptr,
                                   const RoutingStats* routing = nullptr);

// The sampling rate of an expert's part: q, for any share of records. A record is in the batch with
// probability q, and the router, which sees the record, may always send it to this expert. The rate
// q times the share would be a statement about the other records (sigma = 1, q = .01, 1000 steps,
// delta = 1e-5, 8 experts of equal share: it would claim epsilon .190 instead of 1.828).
double effective_sampling_rate(double rate, const RoutingStats* routing) noexcept;

}  // namespace discreet::mechanism
