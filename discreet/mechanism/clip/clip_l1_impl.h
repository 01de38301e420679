#pragma once

#include <span>

#include "discreet/mechanism/clip/clip.h"
#include "discreet/mechanism/clip/clip_ranges_impl.h"

namespace discreet::mechanism {

// Proof: clip.md

// The L1 norms of the permitted coordinates of each record, by part: n >= (1 + 2^-53) sum |x_j|,
// rounded up; +inf on overflow. Without scales. Ranges, permits and records that are not finite: as
// in clip_ranges.
template <class Real>
RecordNorms l1_norms(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                     std::span<const CoordinateRange> ranges, const Permits& permits,
                     const ClipOptions& options);

// sum_j += fl(s x_j) with the scales of each record and part, in ascending order of records.
template <class Real>
void add_ranges(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                std::span<const CoordinateRange> ranges, const RecordNorms& decided, int threads,
                GradientSum& sum);

// An upper bound of the sum of the norms, each >= 0.
double sum_from_above(std::span<const double> norms) noexcept;

}  // namespace discreet::mechanism
