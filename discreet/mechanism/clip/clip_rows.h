#pragma once

#include <cstdint>

#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {

// Clipping of explicit per-sample gradients.
//
// Proof: clip.md

// Adds the clipped gradients of all records to `sum`:
//   sum_j += fl(s_{i,g} x_{i,j})   for i = 0, 1, ... and every coordinate j of part g,
// product and sum rounded to nearest in binary64, in ascending order of the records for every
// coordinate. With x_{i,g} the part g of record i, the norm n_{i,g} reported is at least
// (1 + 2^-53) ||x_{i,g}||: it pays for the rounding of the products, so that what is added has norm
// at most C_g (clip.md names the subnormal exception). The rounding of the sum itself is charged by
// summation_charge().
//
// A record's norms and scales depend on its own values and the plan alone, not on the order of the
// records, on max_microbatch or on threads; the sum depends on the order, not on the other two.
//
// A record with a NaN or an infinity: options.nonfinite. A record of finite binary64 values whose
// norm overflows has norm +inf and scale 0; it contributes 0 and is not counted as zeroed. Binary32
// values never overflow. An empty batch changes nothing.
//
// Throws, leaving every bit of `sum` as it was:
//   kInvalidGradient   naming tensor and record: a value is not finite (kAbort); naming the tensor:
//                      its span has not records x elements values
//   kInvalidDpConfig   the plan's partition is not one of this layout, a bound is not finite and
//                      positive, max_microbatch is 0
//   kInvalidInput      `sum` is of another layout, or the processor does not round to nearest
// Memory besides: for several parts a copy of the sum, of what is not zero in it; for a microbatch,
// one number per record and 16384 coordinates. Nothing of the size of batch x parameters.
//
// UML_OS.DifferentialPrivacy.ClipPerSample_v1 is this with the plan of Cut::kFlat; PerLayerClip_v1,
// PerGroupClip_v1 and PerTensorClip_v1 with that of their cut; hybrid with a flat_clip beside it.
RecordNorms clip_per_sample(const ModelLayout& layout, const PerSampleGradients<float>& gradients,
                            const ClipPlan& plan, const ClipOptions& options, GradientSum& sum);
RecordNorms clip_per_sample(const ModelLayout& layout, const PerSampleGradients<double>& gradients,
                            const ClipPlan& plan, const ClipOptions& options, GradientSum& sum);

// The norms alone: what clip_per_sample would report, without scales and without a sum. A record
// that is not finite has zeroed = 1 and norms 0 under kZero; kAbort throws as above.
RecordNorms per_sample_norms(const ModelLayout& layout, const PerSampleGradients<float>& gradients,
                             const Partition& partition, const ClipOptions& options);
RecordNorms per_sample_norms(const ModelLayout& layout, const PerSampleGradients<double>& gradients,
                             const Partition& partition, const ClipOptions& options);

// The scaled gradients alone: sum += scales x gradients, for scales decided elsewhere (several
// ranks). A row of scale 0 is not read. Throws as clip_per_sample for what does not fit together.
void add_scaled(const ModelLayout& layout, const PerSampleGradients<float>& gradients,
                const Partition& partition, const RecordNorms& decided, const ClipOptions& options,
                GradientSum& sum);
void add_scaled(const ModelLayout& layout, const PerSampleGradients<double>& gradients,
                const Partition& partition, const RecordNorms& decided, const ClipOptions& options,
                GradientSum& sum);

// What the rounding of the sum adds to the sensitivity, relative to the clip bound: two sums of at
// most `terms` clipped records (of one part; all microbatches and ranks of a step together) that
// differ in one record differ by at most (1 + summation_charge(terms)) C in norm. Rounded up; about
// terms^2 2^-52: 3.8e-9 for 4096 records. +inf from 2^40 terms on. `terms` must be a public bound,
// such as the largest batch the sampler is declared to give.
double summation_charge(std::uint64_t terms) noexcept;

}  // namespace discreet::mechanism
