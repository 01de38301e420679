#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "discreet/base/error.h"
#include "discreet/mechanism/clip/clip_l1_impl.h"
#include "discreet/numerics/parallel.h"
#include "discreet/numerics/rounding.h"
#include "discreet/numerics/sum.h"

namespace discreet::mechanism {
namespace {

using numerics::next_up;

// The sum of the magnitudes, never below it; NaN if a value is not finite.
template <class Real>
double magnitude(std::span<const Real> values) {
  std::array<double, 4096> piece;
  double total = 0;
  bool finite = true;
  for (std::size_t begin = 0; begin < values.size(); begin += piece.size()) {
    const auto from = values.subspan(begin, std::min(piece.size(), values.size() - begin));
    for (std::size_t k = 0; k < from.size(); ++k) {
      piece[k] = std::fabs(static_cast<double>(from[k]));
      finite = finite && std::isfinite(piece[k]);
    }
    const double own = numerics::sum(std::span<const double>(piece.data(), from.size()));
    if (own != 0) total = next_up(total + next_up(own * (1 + 0x1p-48)));
  }
  return finite ? total : std::numeric_limits<double>::quiet_NaN();
}

template <class Real>
std::span<const Real> row_of(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                             const CoordinateRange& range, std::size_t record) {
  const std::size_t n = layout.elements(range.tensor);
  return gradients.tensors[range.tensor].subspan(record * n + range.begin, range.end - range.begin);
}

}  // namespace

double sum_from_above(std::span<const double> norms) noexcept {
  double total = 0;
  for (const double norm : norms) total = total == 0 ? norm : next_up(total + norm);
  return total;
}

template <class Real>
RecordNorms l1_norms(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                     std::span<const CoordinateRange> ranges, const Permits& permits,
                     const ClipOptions& options) {
  check_gradients(layout, gradients);
  RecordNorms out;
  out.records = gradients.records;
  out.parts = permits.parts;
  out.norms.resize(out.records * out.parts);
  out.zeroed.resize(out.records);
  numerics::parallel_items(out.records, options.threads, [&](std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i)
      for (const CoordinateRange& range : ranges) {
        if (!permits(i, range.part)) continue;
        double& norm = out.norms[i * out.parts + range.part];
        const double own = magnitude(row_of(layout, gradients, range, i));
        if (own != 0) norm = next_up(norm + own);
      }
  });
  for (std::size_t i = 0; i < out.records; ++i) {
    const auto own = std::span(out.norms).subspan(i * out.parts, out.parts);
    if (std::ranges::none_of(own, [](double norm) { return std::isnan(norm); })) continue;
    if (options.nonfinite == Nonfinite::kAbort) {
      const auto bad = std::ranges::find_if(ranges, [&](const CoordinateRange& range) {
        return permits(i, range.part) && std::isnan(magnitude(row_of(layout, gradients, range, i)));
      });
      invalid_gradient("ClipPerSample_v1",
                       "the gradient of tensor {} is not finite in record {}; nothing was added. "
                       "Set nonfinite: zero to leave such records out",
                       layout.tensors()[bad->tensor].name, i);
    }
    std::ranges::fill(own, 0.0);
    out.zeroed[i] = 1;
  }
  return out;
}

template <class Real>
void add_ranges(const ModelLayout& layout, const PerSampleGradients<Real>& gradients,
                std::span<const CoordinateRange> ranges, const RecordNorms& decided, int threads,
                GradientSum& sum) {
  for (const CoordinateRange& range : ranges) {
    const auto out = sum.tensor(range.tensor).subspan(range.begin, range.end - range.begin);
    for (std::size_t i = 0; i < gradients.records; ++i) {
      const double scale = decided.scale(i, range.part);
      // 0 times an infinity is not 0.
      if (scale != 0)
        numerics::scaled_add(scale, row_of(layout, gradients, range, i), out, threads);
    }
  }
}

template RecordNorms l1_norms(const ModelLayout&, const PerSampleGradients<float>&,
                              std::span<const CoordinateRange>, const Permits&, const ClipOptions&);
template RecordNorms l1_norms(const ModelLayout&, const PerSampleGradients<double>&,
                              std::span<const CoordinateRange>, const Permits&, const ClipOptions&);
template void add_ranges(const ModelLayout&, const PerSampleGradients<float>&,
                         std::span<const CoordinateRange>, const RecordNorms&, int, GradientSum&);
template void add_ranges(const ModelLayout&, const PerSampleGradients<double>&,
                         std::span<const CoordinateRange>, const RecordNorms&, int, GradientSum&);

}  // namespace discreet::mechanism
