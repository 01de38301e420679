#include "discreet/mechanism/noise/compression.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "discreet/base/error.h"
#include "discreet/random/subsets.h"

namespace discreet::mechanism {
namespace {

std::uint64_t kept_of(double keep, std::uint64_t n) {
  if (!(keep > 0 && keep <= 1))
    invalid_config("compression",
                   "noise.compression keeps the share {} of the coordinates; it must be in (0, 1]",
                   keep);
  return std::min(n, static_cast<std::uint64_t>(std::ceil(keep * static_cast<double>(n))));
}

}  // namespace

CoordinateMask CoordinateMask::all(const ModelLayout& layout) {
  CoordinateMask mask;
  mask.kept_.resize(layout.size());
  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (!layout.tensors()[i].is_private()) continue;
    mask.kept_[i].resize(layout.elements(i));
    std::iota(mask.kept_[i].begin(), mask.kept_[i].end(), 0);
  }
  return mask;
}

CoordinateMask CoordinateMask::sparse(const ModelLayout& layout, double keep,
                                      const random::Generator& generator, std::uint64_t step) {
  kept_of(keep, 0);
  CoordinateMask mask;
  mask.kept_.resize(layout.size());
  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (!layout.tensors()[i].is_private()) continue;
    const std::uint64_t n = layout.elements(i);
    mask.kept_[i] =
        random::fixed_size_subset(generator, random::Position::at(step, i), n, kept_of(keep, n));
  }
  return mask;
}

CoordinateMask CoordinateMask::largest(const ModelLayout& layout, double keep,
                                       const GradientSum& magnitudes) {
  kept_of(keep, 0);
  for (const double m : magnitudes.values())
    if (std::isnan(m)) invalid_input("compression", "a released magnitude is NaN");
  CoordinateMask mask;
  mask.kept_.resize(layout.size());
  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (!layout.tensors()[i].is_private()) continue;
    const auto values = magnitudes.tensor(i);
    std::vector<std::uint64_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    const auto count = static_cast<std::ptrdiff_t>(kept_of(keep, values.size()));
    std::nth_element(order.begin(), order.begin() + count, order.end(),
                     [&](std::uint64_t a, std::uint64_t b) {
                       const double x = std::fabs(values[a]), y = std::fabs(values[b]);
                       return x != y ? x > y : a < b;
                     });
    order.resize(static_cast<std::size_t>(count));
    std::ranges::sort(order);
    mask.kept_[i] = std::move(order);
  }
  return mask;
}

ModelLayout CoordinateMask::reduced(const ModelLayout& layout) const {
  std::vector<Tensor> tensors(layout.tensors().begin(), layout.tensors().end());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].is_private()) continue;
    tensors[i].shape = {kept_.at(i).size()};
    tensors[i].heads.reset();
    tensors[i].experts.reset();
  }
  return ModelLayout(std::move(tensors));
}

template <class Real>
Gathered<Real>::Gathered(const ModelLayout& layout, const CoordinateMask& mask,
                         const PerSampleGradients<Real>& gradients, std::size_t begin,
                         std::size_t end)
    : values_(layout.size()) {
  if (gradients.tensors.size() != layout.size())
    invalid_gradient("compression", "found {} gradient tensors for a model of {}",
                     gradients.tensors.size(), layout.size());
  gradients_.records = end - begin;
  gradients_.tensors.resize(layout.size());
  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (!layout.tensors()[i].is_private()) continue;
    const std::uint64_t n = layout.elements(i);
    const auto rows = gradients.tensors[i];
    if (rows.size() != gradients.records * n)
      invalid_gradient("compression", "tensor {} has {} values; expected {} records of {}",
                       layout.tensors()[i].name, rows.size(), gradients.records, n);
    const auto kept = mask.kept(i);
    values_[i].reserve((end - begin) * kept.size());
    for (std::size_t record = begin; record < end; ++record)
      for (const std::uint64_t k : kept) values_[i].push_back(rows[record * n + k]);
    gradients_.tensors[i] = values_[i];
  }
}

template class Gathered<float>;
template class Gathered<double>;

void scatter(const CoordinateMask& mask, const GradientSum& reduced, GradientSum& full) {
  for (std::size_t i = 0; i < full.tensors(); ++i) {
    const auto kept = mask.kept(i);
    const auto from = reduced.tensor(i);
    const auto to = full.tensor(i);
    for (std::size_t k = 0; k < kept.size(); ++k) to[kept[k]] += from[k];
  }
}

}  // namespace discreet::mechanism
