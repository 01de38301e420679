#pragma once

#include <span>

#include "discreet/mechanism/clip/clip.h"
#include "discreet/mechanism/clip/collective.h"

namespace discreet::mechanism {

// Clipping on several ranks. All ranks call these functions together, with the same plan and
// options, and finish together. If one rank fails, none adds anything; that rank throws its own
// error, the others throw kInvalidGradient naming it.
//
// Proof: clip.md

// Each rank has its own records (data parallelism; the numbers may differ and may be 0). Adds the
// clipped gradients of all records to `sum`, with equal bits on every rank: each rank sums its
// records from zero in ascending order, the ranks are added in ascending order (or node by node),
// and the total is added to `sum`. A record's norm and scale have the same bits as on one rank; the
// sum differs from that of one rank only by rounding, which summation_charge(records + ranks)
// covers. Returns the norms of the rank's own records.
//   Real: float or double
template <class Real>
RecordNorms clip_across_ranks(Collective& collective, const ModelLayout& layout,
                              const PerSampleGradients<Real>& gradients, const ClipPlan& plan,
                              const ClipOptions& options, GradientSum& sum);

// Each rank holds some tensors of every record (sharded parameters).
//   held    one per tensor of the layout: whether this rank holds it. Exactly one rank must hold
//           each private tensor, otherwise kInvalidDpConfig on all.
// Returns the layout in which only the held tensors are trainable; the rank's gradients and sum
// have this layout.
ModelLayout shard_of(const ModelLayout& layout, std::span<const bool> held);

// Adds the rank's tensors of the clipped gradients to `sum`, a GradientSum(shard). The norm of a
// part covers all ranks: it is gathered before scaling, combined in ascending order of ranks and
// rounded up. It is never below the exact norm, and equals the unsharded one up to a factor of 1 +
// (2k + 5) 2^-52, where k is the number of pieces and ranks (clip.md). A record that is not finite
// on one rank is treated so on all. All ranks return equal RecordNorms.
//   shard   shard_of(layout, held)
//   plan    for the whole layout
//   gradients.records must be equal on all ranks, otherwise kInvalidGradient on all
template <class Real>
RecordNorms clip_sharded(Collective& collective, const ModelLayout& shard,
                         const PerSampleGradients<Real>& gradients, const ClipPlan& plan,
                         const ClipOptions& options, GradientSum& sum);

}  // namespace discreet::mechanism
