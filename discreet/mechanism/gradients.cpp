#include "discreet/mechanism/gradients.h"

#include <algorithm>

namespace discreet::mechanism {

GradientSum::GradientSum(const ModelLayout& layout) : offsets_{0} {
  offsets_.reserve(layout.size() + 1);
  for (std::size_t i = 0; i < layout.size(); ++i)
    offsets_.push_back(offsets_.back() +
                       (layout.tensors()[i].is_private() ? layout.elements(i) : 0));
  values_.resize(offsets_.back());
}

std::span<double> GradientSum::tensor(std::size_t i) noexcept {
  return std::span(values_).subspan(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

std::span<const double> GradientSum::tensor(std::size_t i) const noexcept {
  return std::span(values_).subspan(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

GradientSum GradientSum::cleared() && noexcept {
  std::ranges::fill(values_, 0.0);
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
