#pragma once

#include <span>

#include "discreet/mechanism/clip/clip.h"
#include "discreet/mechanism/clip/collective.h"

namespace discreet::mechanism {

// Clipping by several ranks. All ranks call these together, with the same plan and options, and end
// together: if one cannot clip, none adds anything; it throws its own error, the others
// kInvalidGradient naming that rank.
//
// Proof: clip.md

// Every rank has records of its own (data parallelism; their number may differ, and be 0). Adds the
// clipped gradients of all records to `sum`, equal bits on every rank: each rank sums its records
// from zero in ascending order, the ranks are added in ascending order (or node by node), and the
// total is added to what `sum` holds. A record's norm and scale have the bits they have on one
// rank; the sum differs from that of one rank by its rounding alone, which is charged by
// summation_charge(records + ranks). Returns the norms of the rank's own records.
//   Real: float or double
template <class Real>
RecordNorms clip_across_ranks(Collective& collective, const ModelLayout& layout,
                              const PerSampleGradients<Real>& gradients, const ClipPlan& plan,
                              const ClipOptions& options, GradientSum& sum);

// Every rank holds some tensors of every record (sharded parameters).
//   held    one per tensor of the layout: whether this rank holds it. Every private tensor is held
//   by
//           exactly one rank, otherwise kInvalidDpConfig on all.
// The layout in which only the tensors held are trainable: the rank's gradients and sum are of it.
ModelLayout shard_of(const ModelLayout& layout, std::span<const bool> held);

// Adds the rank's tensors of the clipped gradients to `sum`, GradientSum(shard). The norm of a part
// is that of all ranks together, gathered before anything is scaled, combined in ascending order of
// ranks and rounded up: never below the exact norm, and equal to the unsharded one up to a factor
// of 1 + (2k + 5) 2^-52, k the number of pieces and ranks (clip.md). A record that is not finite on
// one rank is treated so on all. Equal RecordNorms on every rank.
//   shard   shard_of(layout, held)
//   plan    of the whole layout
//   gradients.records must be the same on every rank, otherwise kInvalidGradient on all
template <class Real>
RecordNorms clip_sharded(Collective& collective, const ModelLayout& shard,
                         const PerSampleGradients<Real>& gradients, const ClipPlan& plan,
                         const ClipOptions& options, GradientSum& sum);

}  // namespace discreet::mechanism
