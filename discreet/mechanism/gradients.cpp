#include "discreet/mechanism/gradients.h"

#include <algorithm>

#include "discreet/numerics/parallel.h"

namespace discreet::mechanism {

GradientSum::GradientSum(const ModelLayout& layout) : offsets_{0} {
  offsets_.reserve(layout.size() + 1);
  for (std::size_t i = 0; i < layout.size(); ++i)
    offsets_.push_back(offsets_.back() +
                       (layout.tensors()[i].is_private() ? layout.elements(i) : 0));
  values_ = std::make_unique<double[]>(offsets_.back());
}

GradientSum::GradientSum(const GradientSum& other) : GradientSum(other.unset()) {
  std::ranges::copy(other.values(), values_.get());
}

GradientSum& GradientSum::operator=(const GradientSum& other) { return *this = GradientSum(other); }

GradientSum GradientSum::unset() const {
  GradientSum out;
  out.offsets_ = offsets_;
  out.values_ = std::make_unique_for_overwrite<double[]>(offsets_.back());
  return out;
}

std::span<double> GradientSum::tensor(std::size_t i) noexcept {
  return values().subspan(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

std::span<const double> GradientSum::tensor(std::size_t i) const noexcept {
  return values().subspan(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

GradientSum GradientSum::cleared(int threads) && {
  numerics::parallel_for(offsets_.back(), threads, [&](std::size_t begin, std::size_t end) {
    std::fill(values_.get() + begin, values_.get() + end, 0.0);
  });
  return std::move(*this);
}

bool GradientSum::is_of(const ModelLayout& layout) const noexcept {
  if (tensors() != layout.size()) return false;
  for (std::size_t i = 0; i < layout.size(); ++i)
    if (tensor(i).size() != (layout.tensors()[i].is_private() ? layout.elements(i) : 0))
      return false;
  return true;
}

}  // namespace discreet::mechanism
