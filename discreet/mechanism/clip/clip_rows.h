#pragma once

#include <cstdint>

#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {

// Clipping of explicit per-sample gradients.
//
// Proof: clip.md

// Adds the clipped gradients of all records to `sum`:
//   sum_j += fl(s_{i,g} x_{i,j})   for i = 0, 1, ... and every coordinate j of part g,
// with product and sum rounded to nearest in binary64, in ascending order of the records for every
// coordinate. With x_{i,g} the part g of record i, the reported norm n_{i,g} is at least (1 +
// 2^-53) ||x_{i,g}||. This covers the rounding of the products, so the added vector has norm at
// most C_g (clip.md names the subnormal exception). summation_charge() covers the rounding of the
// sum itself.
//
// A record's norms and scales depend only on its own values and the plan, not on the order of the
// records, max_microbatch or threads. The sum depends on the order, but not on the other two.
//
// For a record with a NaN or an infinity see options.nonfinite. A record of finite binary64 values
// whose norm overflows has norm +inf and scale 0; it contributes 0 and is not counted as zeroed.
// The norms of binary32 values never overflow. An empty batch changes nothing.
//
// Throws, leaving every bit of `sum` unchanged:
//   kInvalidGradient   naming tensor and record: a value is not finite (kAbort); naming the tensor:
//                      its span does not have records x elements values
//   kInvalidDpConfig   the plan's partition does not match this layout, a bound is not finite and
//                      positive, max_microbatch is 0
//   kInvalidInput      `sum` has another layout, or the processor does not round to nearest
// Additional memory: with several parts, a copy of the non-zero part of the sum; for a microbatch,
// one number per record and 16384 coordinates. Nothing of the size of batch x parameters.
//
// UML_OS.DifferentialPrivacy.ClipPerSample_v1 is this function with the plan of Cut::kFlat;
// PerLayerClip_v1, PerGroupClip_v1 and PerTensorClip_v1 use the plan of their cut; hybrid adds a
// flat_clip.
RecordNorms clip_per_sample(const ModelLayout& layout, const PerSampleGradients<float>& gradients,
                            const ClipPlan& plan, const ClipOptions& options, GradientSum& sum);
RecordNorms clip_per_sample(const ModelLayout& layout, const PerSampleGradients<double>& gradients,
                            const ClipPlan& plan, const ClipOptions& options, GradientSum& sum);

// Only the norms that clip_per_sample would report, without scales and sum. A record that is not
// finite has zeroed = 1 and norms 0 under kZero; kAbort throws as above.
RecordNorms per_sample_norms(const ModelLayout& layout, const PerSampleGradients<float>& gradients,
                             const Partition& partition, const ClipOptions& options);
RecordNorms per_sample_norms(const ModelLayout& layout, const PerSampleGradients<double>& gradients,
                             const Partition& partition, const ClipOptions& options);

// Only the scaled sum: sum += scales x gradients, for scales decided elsewhere (several ranks). A
// row with scale 0 is not read. Throws as clip_per_sample for inconsistent arguments.
void add_scaled(const ModelLayout& layout, const PerSampleGradients<float>& gradients,
                const Partition& partition, const RecordNorms& decided, const ClipOptions& options,
                GradientSum& sum);
void add_scaled(const ModelLayout& layout, const PerSampleGradients<double>& gradients,
                const Partition& partition, const RecordNorms& decided, const ClipOptions& options,
                GradientSum& sum);

// What the rounding of the sum adds to the sensitivity, relative to the clip bound C: two sums of
// at most `terms` clipped records (of one part; all microbatches and ranks of a step together) that
// differ in one record differ by at most (1 + summation_charge(terms)) C in norm. Rounded up; about
// terms^2 2^-52: 3.8e-9 for 4096 records. +inf from 2^40 terms on. `terms` must be a public bound,
// such as the largest batch that the sampler is declared to draw.
double summation_charge(std::uint64_t terms) noexcept;

}  // namespace discreet::mechanism
