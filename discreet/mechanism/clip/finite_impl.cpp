#include "discreet/mechanism/clip/finite_impl.h"

// The order of these matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "discreet/mechanism/clip/finite_impl.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace discreet::mechanism::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x - x is 0 for finite x and NaN for all else, and NaN stays in a sum.
template <class Real>
bool AllFinite(const Real* x, std::size_t count) {
  const hn::CappedTag<Real, 64 / sizeof(Real)> d;
  const std::size_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d), b = a;
  std::size_t j = 0;
  for (; j + 2 * lanes <= count; j += 2 * lanes) {
    const auto x0 = hn::LoadU(d, x + j), x1 = hn::LoadU(d, x + j + lanes);
    a = hn::Add(a, hn::Sub(x0, x0));
    b = hn::Add(b, hn::Sub(x1, x1));
  }
  Real total = hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
  for (; j < count; ++j)
    total += x[j] - x[j];  // NOLINT(misc-redundant-expression): NaN unless finite
  return total == 0;
}

bool FiniteFloats(const float* x, std::size_t count) { return AllFinite(x, count); }
bool FiniteDoubles(const double* x, std::size_t count) { return AllFinite(x, count); }

}  // namespace discreet::mechanism::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace discreet::mechanism {
HWY_EXPORT(FiniteFloats);
HWY_EXPORT(FiniteDoubles);

bool all_finite(std::span<const float> values) noexcept {
  return HWY_DYNAMIC_DISPATCH(FiniteFloats)(values.data(), values.size());
}
bool all_finite(std::span<const double> values) noexcept {
  return HWY_DYNAMIC_DISPATCH(FiniteDoubles)(values.data(), values.size());
}

}  // namespace discreet::mechanism
#endif
