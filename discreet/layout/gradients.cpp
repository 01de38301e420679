#include "discreet/layout/gradients.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "discreet/numerics/parallel.h"

namespace discreet {

// A tile of a product is added to rows that are far apart: with pages of 4 KiB their addresses take
// as long to translate as the numbers to add. Below 2 MiB nothing is far.
GradientSum::Values GradientSum::room(std::size_t count) {
  constexpr std::size_t kHugePage = std::size_t{1} << 21, kLine = 64;
  if (count > SIZE_MAX / sizeof(double) - kHugePage) throw std::bad_alloc();
  const std::size_t bytes = count * sizeof(double);
  const std::size_t unit = bytes < kHugePage ? kLine : kHugePage;
  const std::size_t whole = (bytes + unit - 1) / unit * unit;
  void* const memory = std::aligned_alloc(unit, whole);
  if (memory == nullptr && whole != 0) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (unit == kHugePage) madvise(memory, whole, MADV_HUGEPAGE);  // if it fails nothing is lost
#endif
  return Values(static_cast<double*>(memory));
}

void GradientSum::Free::operator()(double* values) const noexcept { std::free(values); }

GradientSum::GradientSum(const ModelLayout& layout) : offsets_{0} {
  offsets_.reserve(layout.size() + 1);
  for (std::size_t i = 0; i < layout.size(); ++i)
    offsets_.push_back(offsets_.back() +
                       (layout.tensors()[i].is_private() ? layout.elements(i) : 0));
  values_ = room(offsets_.back());
  std::fill_n(values_.get(), offsets_.back(), 0.0);
}

GradientSum::GradientSum(const GradientSum& other) : GradientSum(other.unset()) {
  written_ = other.written_;
  if (written_) std::ranges::copy(other.values(), values_.get());
}

GradientSum& GradientSum::operator=(const GradientSum& other) { return *this = GradientSum(other); }

GradientSum GradientSum::unset() const {
  GradientSum out;
  out.offsets_ = offsets_;
  out.values_ = room(offsets_.back());
  return out;
}

std::span<double> GradientSum::tensor(std::size_t i) noexcept {
  return values().subspan(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

std::span<const double> GradientSum::tensor(std::size_t i) const noexcept {
  return values().subspan(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

GradientSum GradientSum::emptied() && noexcept {
  written_ = false;
  return std::move(*this);
}

void GradientSum::settle(int threads) {
  if (written_) return;
  numerics::parallel_for(offsets_.back(), threads, [&](std::size_t begin, std::size_t end) {
    std::fill(values_.get() + begin, values_.get() + end, 0.0);
  });
  written_ = true;
}

bool GradientSum::is_of(const ModelLayout& layout) const noexcept {
  if (tensors() != layout.size()) return false;
  for (std::size_t i = 0; i < layout.size(); ++i)
    if (tensor(i).size() != (layout.tensors()[i].is_private() ? layout.elements(i) : 0))
      return false;
  return true;
}

}  // namespace discreet
